"""Which thread of the program trains. Any may: a notebook, a server or `asyncio.to_thread` runs the loop where it
likes, in one thread after the other. But of two threads that call models with gradients at the same time only one is
recorded, since the steps of one would end the iterations of the other. The calls of the other, its backwards and its
steps are left alone, for as long as the one that is recorded lives.

The main thread goes before others, and a thread that trains already before one that begins."""

import threading


class Threads:
    def __init__(self) -> None:
        self._trains: threading.Thread | None = None  # has called a model with gradients last
        self._calling: set[threading.Thread] = set()  # those that are in a call of a model or in backward
        self._aside = threading.local()  # `.is_so` in a thread that is left alone
        self._any_is_aside = False

    def is_aside(self) -> bool:
        """Whether this thread is left alone."""
        is_so = self._any_is_aside and getattr(self._aside, "is_so", False)
        return is_so and self._trains is not None and self._trains.is_alive()

    def trains(self) -> bool:
        """Whether no other living thread has called a model with gradients last."""
        return self._trains is None or self._trains is threading.current_thread() or not self._trains.is_alive()

    def begin(self, is_known: bool) -> bool:
        """Before a call of a model with gradients; `is_known`: it was called before. Returns whether it is to be
        recorded; else this thread is left alone from now on."""
        this = threading.current_thread()
        if not self.trains() and this is not threading.main_thread():
            is_beside = any(other is not this and other.is_alive() for other in self._calling)
            if is_beside or not is_known:
                self._aside.is_so = self._any_is_aside = True
                return False
        self._trains = this
        self._aside.is_so = False
        return True

    def enter(self) -> bool:
        """This thread begins a call of a model, or a backward. Returns whether it was in none: then it must `leave`."""
        this = threading.current_thread()
        is_first = this not in self._calling
        self._calling.add(this)
        return is_first

    def leave(self) -> None:
        self._calling.discard(threading.current_thread())

    @property
    def name(self) -> str:
        """Of the one that trains."""
        return self._trains.name if self._trains is not None else ""
