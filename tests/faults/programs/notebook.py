"""`notebook.py RESULTS`: runs job.py in a Jupyter kernel, one cell after the other, with one that fails and one that is
interrupted between them."""

import sys
import time
from pathlib import Path

from jupyter_client.manager import start_new_kernel

HERE = Path(__file__).resolve().parent

CELLS = [
    f"import sys; sys.path.append({str(HERE)!r}); import job, types",
    f"options = types.SimpleNamespace(results={sys.argv[1]!r}, width=8)",
    "run = job.Job(options)",
    "run.step(0)",
    "1 / 0",
    "import time\ntime.sleep(60)",
    "run.step(1)\nrun.step(2)",
    "import hashlib\n"
    "bits = b''.join(p.detach().numpy().tobytes() for p in run.model.parameters())\n"
    "run.say(f'parameters {hashlib.sha256(bits).hexdigest()}')",
]


def wait_until_busy(client, message):
    while True:
        answer = client.get_iopub_msg(timeout=60)
        if answer["parent_header"].get("msg_id") == message and answer["content"].get("execution_state") == "busy":
            return


def answer_to(client, message):
    while True:
        answer = client.get_shell_msg(timeout=60)
        if answer["parent_header"].get("msg_id") == message:
            return answer


manager, client = start_new_kernel(kernel_name="python3")
try:
    for cell in CELLS:
        message = client.execute(cell)
        if "sleep" in cell:
            wait_until_busy(client, message)
            time.sleep(0.5)
            manager.interrupt_kernel()
        content = answer_to(client, message)["content"]
        print(cell.splitlines()[0], content["status"], content.get("ename", ""))
finally:
    manager.shutdown_kernel()
