"""Runs the sides of a benchmark in turn, each in a process of its own.

Threads of TensorFlow and torch compete within one process, and the speed of a shared
machine changes with time. So each side runs alone. The sides take turns for some
rounds, and a ratio is the median of the ratios in these rounds.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ALLOCATORS = {
    # Not a setting of glibc: this variable keeps our side from changing glibc's.
    "default": {"MALLOC_UNTOUCHED": "1"},
    # glibc keeps large blocks of memory, which saves a page fault for each page.
    "tuned": {
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": "17179869184",
        "MALLOC_TOP_PAD_": "268435456",
    },
}
_CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
# For every process: use this checkout, and print no notes on standard error.
ENVIRONMENT = {
    **_CLEAN,
    "PYTHONPATH": str(pathlib.Path(__file__).parents[1]),
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONWARNINGS": "ignore",
}


def main(description, sides, *, allocators=("default", "tuned"), rounds=3):
    """Measures the sides and prints one JSON line per case and allocator.

    Args:
        description: string, the help text of the command.
        sides: dict from names to functions. A function takes `quick` (bool: a smoke
            test) and returns `{case: repeat(...)}`. Our sides come first, and their
            names begin with "ours". A name that contains "peer" is a setting of the
            peer: eager, unless it contains "compiled" or "onnx".
        allocators: names in `ALLOCATORS`.
        rounds: int, number of turns of each side.
    """
    arguments = _arguments(description, rounds, allocators)
    if arguments.side:
        result = sides[arguments.side](quick=arguments.quick)
        print(json.dumps(result))
        return
    chosen = [s for s in sides if not arguments.only or s in arguments.only]
    for allocator in arguments.allocators:
        runs = [
            {side: _run(side, allocator, arguments) for side in chosen}
            for _ in range(arguments.rounds)
        ]
        for case in runs[0][chosen[0]]:
            line = {"case": case, "allocator": allocator, **_summary(runs, case)}
            print(json.dumps(line), flush=True)


def run_alone(description, side, *, allocator="tuned"):
    """Runs a side without a peer in a process of its own; returns its lines.

    `side` takes `quick` and returns a list of dicts. The allocator is added to each.
    """
    arguments = _arguments(description, 1, [allocator])
    if arguments.side:
        print(json.dumps(side(quick=arguments.quick)))
        sys.exit()
    for allocator in arguments.allocators:
        for line in _run("ours", allocator, arguments):
            yield {**line, "allocator": allocator}


def repeat(function, repeats, *, warm_up=2):
    """Times `repeats` calls, after some calls that are not counted.

    Returns:
        Dict of lists: `seconds` of wall-clock time, and `cpu_seconds` of all threads of
        this process. CPU time is meaningful on a busy machine, too.
    """
    for _ in range(warm_up):
        function()
    times = {"seconds": [], "cpu_seconds": []}
    for _ in range(repeats):
        clock, cpu = time.perf_counter(), time.process_time()
        function()
        times["seconds"].append(time.perf_counter() - clock)
        times["cpu_seconds"].append(time.process_time() - cpu)
    return times


def _arguments(description, rounds, allocators):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument(
        "--allocators", nargs="+", choices=ALLOCATORS, default=allocators
    )
    parser.add_argument("--only", nargs="+", help="names of the sides to run")
    parser.add_argument(
        "--peer-python",
        default=sys.executable,
        help="the Python that has torch, timm and effdet (this one)",
    )
    parser.add_argument("--side", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = 1
    return arguments


def _run(side, allocator, arguments):
    python = arguments.peer_python if "peer" in side else sys.executable
    command = [python, sys.argv[0], "--side", side]
    command += ["--quick"] if arguments.quick else []
    # By default, torch's idle threads spin, which is only good if nothing else runs.
    is_passive = "peer" in side and "spinning" not in side
    spin = {"OMP_WAIT_POLICY": "PASSIVE"} if is_passive else {}
    environment = {**ENVIRONMENT, **spin, **ALLOCATORS[allocator]}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _summary(runs, case):
    """Returns medians of each side, and how many times as fast as the peer we are."""
    sides = list(runs[0])
    summary = {
        "rounds": len(runs),
        "repeats": sum(len(run[sides[0]][case]["seconds"]) for run in runs),
    }
    for unit in ("seconds", "cpu_seconds"):
        rounds = [
            {side: statistics.median(run[side][case][unit]) for side in sides}
            for run in runs
        ]
        summary[unit] = {
            side: round(statistics.median(medians[side] for medians in rounds), 4)
            for side in sides
        }
        for kind, peers in _peers(sides).items():
            ratios = {
                side: round(_times_as_fast(side, peers, rounds), 3)
                for side in sides
                if side.startswith("ours")
            }
            if ratios:
                is_one = list(ratios) == ["ours"]
                key = f"times_as_fast_as_{kind}_peer_in_{unit}"
                summary[key] = ratios["ours"] if is_one else ratios
    return summary


def _peers(sides):
    """Returns the settings of the peer, by kind."""
    kinds = {}
    for side in sides:
        if "peer" in side:
            found = (kind for kind in ("compiled", "onnx") if kind in side)
            kinds.setdefault(next(found, "eager"), []).append(side)
    return kinds


def _times_as_fast(side, peers, rounds):
    """Returns the speed relative to the best peer, for each round."""
    return statistics.median(
        min(medians[peer] for peer in peers) / medians[side] for medians in rounds
    )
