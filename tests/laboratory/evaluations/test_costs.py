"""What the page of recording's costs says follows from what was measured."""

from evaluations import costs

FIGURES = {"recorded_ratio_seconds": 1.6, "recorded_ratio_cpu": 1.3, "waiting_ratio_cpu": 1.01}
TIMES = FIGURES | {f"{name}_min": value - 0.1 for name, value in FIGURES.items()}
TIMES |= {f"{name}_max": value + 0.1 for name, value in FIGURES.items()}


def test_sizes_stand_beside_the_parameters_and_times_beside_their_range():
    sizes = costs.Bytes("tinygpt", 1000, 50, 4096, 8 * 2**20, 2**20, 2**19)
    verdicts = [
        {
            "program": "torch",
            "source": source,
            "launches": launches,
            "seconds": 10.0 * launches,
            "verdict": "same",
            "start": 20,
        }
        for source, launches in (("loader", 2), ("generator", 6))
    ]
    text = "\n".join(costs.render([sizes], {"tinygpt": TIMES}, verdicts))
    assert "| torch | 2 | 20 s | same | 6 | 60 s | same |" in text
    assert "| tinygpt | 1,000 | 50 | 8.0 MiB (2048.00) | 1.0 MiB (256.00) | 0.5 MiB (128.00) |" in text
    assert "| tinygpt | 1.60 [1.50, 1.70] | 1.30 [1.20, 1.40] | 1.01 [0.91, 1.11] |" in text


def test_a_recording_has_the_bytes_and_tensors_that_the_trace_has():
    size, (elements, tensors, plain) = costs.record(costs.MODELS[0])
    assert size > plain > elements > 0 and tensors > 100
