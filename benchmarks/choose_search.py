"""How close does `effdet-keras choose` come to an exhaustive search, and how fast?

    python benchmarks/choose_search.py blood-cells DATA
    python benchmarks/choose_search.py DATA --steps 270 --sizes 192 256 --seeds 0

Each dataset is searched twice, in separate processes: exhaustively (`--rungs 1`, every
candidate is trained to the end), and by successive halving. Both measure the same files
before the training. The AP of both is that of the chosen file on `val`, which was used
to choose it. `test`, if there is one, evaluates the two chosen files. CPU time is given
for the whole processes, and for the trainings with their evaluations only. Prints a
JSON line for each dataset and seed.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

import effdet_keras as ek

_BLOOD_CELLS = pathlib.Path(ek.data.__file__).parent / "blood_cells"
_TINY = {"backbone": "efficientnet-lite0", "max_level": 5, "fpn_num_filters": 8}
_TINY |= {"fpn_cell_repeats": 1, "head_repeats": 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("data", nargs="*", default=["blood-cells"], help="`blood-cells`, or a path")
    add("--seeds", nargs="+", type=int, default=[0])
    add("--steps", type=int, default=459, help="of a whole training")
    add("--batch-size", type=int, default=4)
    models = ["efficientdet-lite0", "efficientdet-lite1"]
    add("--models", nargs="+", default=models)
    add("--sizes", nargs="+", default=["128", "192", "256"])
    add("--precisions", nargs="+", default=["float32"])
    add("--target", default="litert")
    add("--out", help="folder to keep the searches in; a search there is continued")
    add("--quick", action="store_true", help="a smoke test: two tiny candidates")
    options = parser.parse_args()
    for name in options.data:
        for seed in options.seeds:
            with tempfile.TemporaryDirectory() as folder:
                out = pathlib.Path(options.out or folder) / pathlib.Path(name).name
                line = {"dataset": pathlib.Path(name).name, "seed": seed}
                line |= compare(name, out / str(seed), seed, options)
            print(json.dumps(line), flush=True)


def compare(name, folder, seed, options):
    """Searches a dataset in both ways; returns the line to print."""
    data = _BLOOD_CELLS if name == "blood-cells" else name
    halved = search(data, folder / "halving", seed, options)
    every = search(data, folder / "exhaustive", seed, options, "--rungs", 1)
    best, pick = every["best"], halved["best"]
    return {
        "steps": every["steps"],
        "candidates": every["candidates"],
        "best": best,
        "pick": pick,
        "lost": round(best["AP"] - pick["AP"], 4),
        "halving": {
            key: halved[key] for key in ("cpu_minutes", "training_cpu_minutes")
        },
        "exhaustive": {
            key: every[key] for key in ("cpu_minutes", "training_cpu_minutes")
        },
        "part_of_time": _part(halved["cpu_minutes"], every["cpu_minutes"]),
        "part_of_training_time": _part(
            halved["training_cpu_minutes"], every["training_cpu_minutes"]
        ),
        "AP_of_all": every["AP_of_all"],
    }


def _part(minutes, of):
    return None if None in (minutes, of) else round(minutes / of, 3)


def search(data, out, seed, options, *more):
    """Runs `choose` in a process of its own; returns its result and its time."""
    words = [data, "--out", out, "--resume", "--target", options.target]
    words += ["--precisions", *options.precisions, "--seed", seed]
    if options.quick:
        fields = {f"model_config.{name}": value for name, value in _TINY.items()}
        fields |= {"weights": "none", "run_eagerly": "true", "anchors": "null"}
        words += ["--sizes", "64", "128", "--models", "efficientdet-lite0"]
        words += ["--set", "epochs=9", "--set", "batch_size=60", "--timed-images", 1]
        words += [f"--set={name}={value}" for name, value in fields.items()]
    else:
        words += ["--sizes", *options.sizes, "--models", *options.models]
        words += ["--steps", options.steps, "--batch-size", options.batch_size]
    words += ["--set", "tensorboard=false", *more]
    is_continued = (out / "choose.json").exists()
    began = _cpu_of_children()
    command = [sys.executable, "-m", "effdet_keras", "choose", *map(str, words)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    minutes = (_cpu_of_children() - began) / 60
    found = json.loads((out / "choose.json").read_text(encoding="utf-8"))
    trained = sum(row["cpu_seconds"] for rung in found["rungs"] for row in rung) / 60
    return {
        "steps": max(row["steps"] for row in found["rungs"][-1]),
        "candidates": len(found["rungs"][0]),
        "best": _numbers(found["best"]),
        "AP_of_all": [_numbers(x) for x in found["files"] if x["ap"] is not None],
        # For a continued search, only a part of the time would be counted.
        "cpu_minutes": None if is_continued else round(minutes, 2),
        "training_cpu_minutes": round(trained, 2),
    }


def _numbers(one):
    size = "x".join(map(str, one["image_size"]))
    name = f"{one['model']} at {size}, {one['file']}"
    numbers = {
        "file": name,
        "AP": round(one["ap"], 4),
        "ms": None if one["median_ms"] is None else round(one["median_ms"], 1),
    }
    if one["test_ap"] is not None:
        numbers["test_AP"] = round(one["test_ap"], 4)
    return numbers


def _cpu_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
