"""How fast are training and detection on a graphics card, compared with PyTorch effdet?

    python benchmarks/gpu.py --minutes 11.5 --out results

It needs a CUDA machine with JAX and torch. TensorFlow is not needed: each side runs in
a process that refuses to import it. Keras, this package, and effdet with timm and
omegaconf for the peer may be in any folder of PYTHONPATH.

The sides are this package on JAX and on torch, and PyTorch effdet, eager and with
`torch.compile`, both with channels_last. Each side is prepared once and then waits. The
sides take turns for some rounds, with nothing else running. A result is the median of
all timed calls. Images are made once, and are on the card. Both sides may use TF32 for
"float32", which is the default of JAX. "bfloat16" is `mixed_bfloat16` here, and
autocast there. On both sides, cuDNN chooses its algorithms by measuring.

These cases are timed, each until its result is available:

- `train`: one step of `fit` (Keras' train function): forward, matching of anchors,
  losses, backward, clipping, SGD with momentum, moving averages, finite check. The peer
  does the same, except for the finite check. In `train_labelled`, the peer's anchors
  were matched before the step, as its training script does it in the data loader's
  processes;
- `forward`: the network alone;
- `detect`: network and postprocess, hard suppression, 100 boxes per image;
- `fit`: our `fit` from arrays in memory, by the times between its steps.
"""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time

START = time.perf_counter()
SIDES = ("ours_jax", "ours_torch", "peer_compiled", "peer")
# The groups in the order of measuring: the most important comes first.
GROUPS = (
    ("d0", "bfloat16"),
    ("lite0", "bfloat16"),
    ("d0", "float32"),
    ("lite0", "float32"),
)
# Preset, the peer's model, side of the images in pixels, batch size of training.
MODELS = {
    "d0": ("efficientdet-d0", "efficientdet_d0", 512, 32),
    "lite0": ("efficientdet-lite0", "efficientdet_lite0", 320, 64),
}
CASES = ("train", "train_labelled", "forward 1", "forward 32", "detect 1", "detect 32")
NUM_CLASSES, NUM_BOXES = 90, 8
SECONDS = {"train": 1.5, "train_labelled": 1.5, "forward": 0.7, "detect": 0.7}


# --- The parent: starts a process for each side, and lets them take turns.


def main():
    arguments = _arguments()
    if arguments.worker:
        _run_worker(arguments)
        return
    lines = Lines(arguments.out)
    lines.write({"started": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())})
    for model, precision in GROUPS:
        if model in arguments.models and precision in arguments.precisions:
            _measure_group(model, precision, arguments, lines)
    lines.write({"seconds": round(time.perf_counter() - START, 1)})


def _measure_group(model, precision, arguments, lines):
    """Prepares all sides of a model and precision, then times them in turns."""
    end = START + 60 * arguments.minutes

    def report(**line):
        lines.write({"model": model, "precision": precision, **line})

    if end - time.perf_counter() < arguments.least_seconds:
        report(skipped="no time left")
        return
    with contextlib.ExitStack() as stack:
        workers = {}

        def start(side):
            workers[side] = Worker(side, model, precision, arguments)
            stack.callback(workers[side].stop)
            workers[side].ask("prepare")

        def answers(sides, end=end, **what):
            """Yields the answers of sides; drops sides that fail or are late."""
            for side in [side for side in sides if side in workers]:
                answer = workers[side].answer(end - time.perf_counter())
                if "error" in answer:
                    report(side=side, **what, **answer)
                    workers.pop(side).stop()
                elif answer:
                    yield side, answer

        def prepare(*sides):
            # Sides that are ready must have time left to be measured.
            for side, answer in answers(sides, end - 40, case="prepare"):
                report(side=side, prepare=answer)

        # Sides that compile take minutes on a few cores, and are prepared together,
        # unless `--alone` asks for the time until their first step.
        compiling = [s for s in ("ours_jax", "peer_compiled") if s in arguments.sides]
        for side in compiling:
            start(side)
            if arguments.alone:
                prepare(side)
        if not arguments.alone:
            prepare(*compiling)
        for side in SIDES:
            if side in arguments.sides and side not in compiling:
                start(side)
                prepare(side)
        for cases in (("train", "train_labelled"), ("forward",), ("detect",)):
            chosen = [c for c in arguments.cases if c.partition(" ")[0] in cases]
            for worker in workers.values():
                worker.ask("first_calls", chosen)
            for side, answer in answers(workers, end - 20, case="first_calls"):
                report(side=side, first_calls=answer)
            for line in _times(chosen, workers, answers, arguments.rounds):
                report(**line)
        for command in ("profile", "fit"):
            for side in list(workers) if getattr(arguments, command) else ():
                workers[side].ask(command, arguments.out)
                for _, answer in answers([side], case=command):
                    report(side=side, **{command: answer})


def _times(cases, workers, answers, rounds):
    """Lets the sides take turns; yields a line for each case and side."""
    results = {}
    for _ in range(rounds):
        for case in cases:
            for side in list(workers):
                workers[side].ask("time", case)
                for _, answer in answers([side], case=case):
                    results.setdefault(case, {}).setdefault(side, []).append(answer)
    for case, by_side in results.items():
        yield from _summary(case, by_side, results.get("train_labelled", {}))


def _summary(case, by_side, labelled):
    """Yields a line per side: median, images per second, ratio to the best peer."""
    medians, peers = _medians(by_side), _medians(by_side, "peer").values()
    labelled_peers = _medians(labelled, "peer").values()
    for side, reports in by_side.items():
        line = {
            "case": case,
            "side": side,
            "milliseconds": round(1000 * medians[side], 3),
            "rounds": [
                round(1000 * statistics.median(r["seconds"]), 3) for r in reports
            ],
            "images_per_second": round(reports[0]["images"] / medians[side], 1),
            "calls": sum(len(report["seconds"]) for report in reports),
        }
        if peers and side.startswith("ours"):
            line["times_as_fast_as_best_peer"] = round(min(peers) / medians[side], 3)
        if labelled_peers and case == "train" and side.startswith("ours"):
            ratio = min(labelled_peers) / medians[side]
            line["times_as_fast_as_best_labelled_peer"] = round(ratio, 3)
        yield line


def _medians(by_side, kind=""):
    """Returns the median seconds of each side whose name begins with `kind`."""
    return {
        side: statistics.median(s for report in reports for s in report["seconds"])
        for side, reports in by_side.items()
        if side.startswith(kind)
    }


class Lines:
    """Prints JSON lines and writes them to `results.jsonl` at once."""

    def __init__(self, folder):
        self._path = pathlib.Path(folder) / "results.jsonl" if folder else None

    def write(self, line):
        text = json.dumps(line)
        print(text, flush=True)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(text + "\n")


class Worker:
    """A process of one side, which takes commands and answers in JSON lines."""

    def __init__(self, side, model, precision, arguments):
        command = [sys.executable, __file__, "--worker", side, "--model", model]
        command += ["--precision", precision]
        command += ["--quick"] if arguments.quick else []
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (as the process)
        environment = {
            # Otherwise JAX would take three quarters of the card's memory at once.
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "TORCHINDUCTOR_COMPILE_THREADS": "8",
            **os.environ,
            "KERAS_BACKEND": "torch" if side == "ours_torch" else "jax",
            "PYTHONWARNINGS": "ignore",
        }
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        self._answers = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._process.stdout:
            if line.startswith("{"):
                self._answers.put(json.loads(line))
        self._answers.put(None)

    def ask(self, *command):
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()

    def answer(self, seconds):
        try:
            answer = self._answers.get(timeout=max(seconds, 1))
        except queue.Empty:
            return {"error": f"no answer within {seconds:.0f} seconds"}
        if answer is None:
            self._answers.put(None)
            self._log.seek(0)
            return {"error": "the process ended", "log": self._log.read()[-2000:]}
        return answer

    def stop(self):
        self._process.kill()
        self._process.wait()


def _arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test, on a CPU")
    parser.add_argument("--minutes", type=float, default=11.5, help="stop after these")
    parser.add_argument("--out", default="", help="a folder for results and profiles")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument(
        "--precisions", nargs="+", default=["bfloat16", "float32"], help=" "
    )
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--cases", nargs="+", default=CASES, help="of " + repr(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--least-seconds", type=int, default=90, help="for a model")
    parser.add_argument(
        "--alone", action="store_true", help="prepare one side after the other"
    )
    parser.add_argument("--profile", action="store_true", help="kernels of a step")
    parser.add_argument("--fit", action="store_true", help="time `fit` (it compiles)")
    parser.add_argument("--worker", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--model", default="d0", help=argparse.SUPPRESS)
    parser.add_argument("--precision", default="float32", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = 1
        arguments.cases = [case.replace("32", "2") for case in arguments.cases]
    return arguments


# --- A worker: one side, one model, one precision.


def _run_worker(arguments):
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries may print, too
    sys.modules["tensorflow"] = None  # makes its import fail, even if it is installed
    side = None
    for line in sys.stdin:
        command, *rest = json.loads(line)
        try:
            if command == "prepare":
                cls = {"ours_jax": OursOnJax, "ours_torch": OursOnTorch}
                side = cls.get(arguments.worker, Peer)(arguments)
                answer = side.prepare()
                side.release_memory()
            else:
                answer = getattr(side, command)(*rest)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {str(error)[:1500]}"}
        print(json.dumps(answer), file=answers, flush=True)


class Side:
    """The common part of all sides: data, and the timing of calls."""

    def __init__(self, arguments):
        self.quick = arguments.quick
        self.name = arguments.worker
        self.precision = arguments.precision
        self.preset, self.peer_name, self.size, self.batch = MODELS[arguments.model]
        if self.quick:
            self.size, self.batch = 128, 2
        self._cases = {}

    def first_calls(self, cases):
        """Returns seconds of the first call of each case, which compiles it."""
        mark = Marks()
        for case in cases:
            if self.once(case) is not None:
                mark(case)
        self.release_memory()
        return mark.seconds

    def once(self, case):
        """Makes and runs a case for the first time; None if a side does not have it."""
        name, _, batch = case.partition(" ")
        if case not in self._cases:
            made = getattr(self, name, None)
            step = made and made(*([int(batch)] if batch else []))
            if step is not None:
                step()
            self._cases[case] = step
        return self._cases[case]

    def time(self, case):
        """Returns seconds of each call of a case."""
        name, _, batch = case.partition(" ")
        step = self.once(case)
        if step is None:
            return {}
        for _ in range(1 if self.quick else 3):
            step()
        seconds, end = [], time.perf_counter() + SECONDS[name]
        while time.perf_counter() < end and not (self.quick and len(seconds) == 2):
            before = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - before)
        images = int(batch) if batch else self.batch
        self.release_memory()
        return {"seconds": seconds, "images": images}

    def release_memory(self):
        """Releases memory of the card that a side keeps but does not need."""

    def fit(self, *_):
        return {}

    def images(self, count):
        """Returns pixels, uint8 `[B, H, W, 3]`."""
        import numpy as np

        size = (count, self.size, self.size, 3)
        return np.random.default_rng(0).integers(0, 256, size, "uint8")

    def truth(self, count):
        """Returns boxes `[B, 8, 4]`, yxyx in pixels, and labels `[B, 8]` from 0."""
        import numpy as np

        rng = np.random.default_rng(1)
        low = rng.uniform(0, self.size / 2, (count, NUM_BOXES, 2))
        sides = rng.uniform(16, self.size / 2, (count, NUM_BOXES, 2))
        boxes = np.concatenate([low, low + sides], axis=-1).astype("float32")
        return boxes, rng.integers(0, NUM_CLASSES, (count, NUM_BOXES)).astype("int32")


class Marks:
    """The seconds between marks, by name."""

    def __init__(self):
        self._last, self.seconds = time.perf_counter(), {}

    def __call__(self, name):
        now = time.perf_counter()
        self.seconds[name] = round(now - self._last, 2)
        self._last = now


class Ours(Side):
    def prepare(self):
        """Does all up to the first training step; returns the seconds of each part."""
        mark = Marks()
        self.start_device()
        mark("framework")
        import effdet_keras as ek

        mark("import")
        import keras

        keras.utils.set_random_seed(0)
        if self.precision == "bfloat16":
            keras.config.set_dtype_policy("mixed_bfloat16")
        self.model = ek.EfficientDet.from_preset(
            self.preset,
            image_size=self.size,
            num_classes=NUM_CLASSES,
        )
        self.model.postprocess = ek.Postprocess(method="hard")
        mark("build")
        self.model.compile(recipe="reference")
        mark("compile")
        boxes, labels = self.truth(self.batch)
        self.data = self.on_device(
            (self.images(self.batch), {"boxes": boxes, "labels": labels})
        )
        self.model.make_train_function()
        self.model.averages.swap_out()
        self._cases["train"] = self.train()
        mark("data")
        self._cases["train"]()
        mark("first_step")
        for _ in range(1 if self.quick else 4):
            self._cases["train"]()
        mark("later_steps")
        return {**mark.seconds, **self.memory(), "versions": self.versions()}

    def versions(self):
        import keras

        return {"keras": keras.__version__}

    def fit(self, *_):
        """Returns images per second of `fit` from arrays, without its first steps."""
        import keras

        times = []

        class Clock(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                times.append(time.perf_counter())

        count = self.batch * (3 if self.quick else 8)
        boxes, labels = self.truth(count)
        truth = {"boxes": boxes, "labels": labels}
        self.put_back()
        self.model.fit(
            self.images(count),
            truth,
            batch_size=self.batch,
            epochs=1 if self.quick else 3,
            callbacks=[Clock()],
            verbose=0,
        )
        seconds = [b - a for a, b in itertools.pairwise(times[1:])]
        median = statistics.median(seconds)
        return {
            "images_per_second": round(self.batch / median, 1),
            "milliseconds": round(1000 * median, 3),
        }


class OursOnJax(Ours):
    def start_device(self):
        import jax

        self._jax = jax
        jax.block_until_ready(jax.device_put(1.0))

    def on_device(self, data):
        return self._jax.block_until_ready(self._jax.device_put(data))

    def versions(self):
        jax = self._jax
        device = jax.devices()[0].device_kind
        return {**super().versions(), "jax": jax.__version__, "device": device}

    def memory(self):
        found = self._jax.devices()[0].memory_stats() or {}
        return {"peak_gib": round(found.get("peak_bytes_in_use", 0) / 2**30, 2)}

    def train(self):
        """Returns a step as `fit` runs it: it ends when the loss has been read."""
        model = self.model
        # Keras' `fit` passes the values of all variables from step to step.
        self._state = model._get_jax_state(
            trainable_variables=True,
            non_trainable_variables=True,
            optimizer_variables=True,
            metrics_variables=True,
        )

        def step():
            _, self._state = model.train_function(self._state, iter([self.data]))

        return step

    def put_back(self):
        """Assigns their values to variables whose memory a step has taken."""
        model = self.model
        groups = (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
        for group, values in zip(groups, self._state):
            for variable, value in zip(group, values):
                variable.assign(value)
        self._cases.pop("train")

    def _compiled(self, function, count):
        jax = self._jax
        images = self.on_device(self.images(count))

        @jax.jit
        def run(state, images):
            import keras

            variables = (
                self.model.trainable_variables,
                (self.model.non_trainable_variables),
            )
            pairs = [
                pair
                for group, values in zip(variables, state)
                for pair in zip(group, values)
            ]
            with keras.StatelessScope(state_mapping=pairs):
                return function(images)

        def step():
            jax.block_until_ready(run(self._state[:2], images))

        return step

    def forward(self, count):
        return self._compiled(lambda x: self.model(x, training=False), count)

    def detect(self, count):
        return self._compiled(self.model.detect_step, count)

    def profile(self, folder):
        """Returns the kernels of some training steps, from the trace of JAX."""
        folder = pathlib.Path(folder or tempfile.mkdtemp()) / "trace"
        jax, steps = self._jax, 5
        step = self.once("train")
        before = time.perf_counter()
        with jax.profiler.trace(str(folder)):
            for _ in range(steps):
                step()
        wall = time.perf_counter() - before
        (path,) = folder.rglob("*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(path))
        found = []
        for plane in data.planes:
            if "GPU" in plane.name:
                for line in plane.lines:
                    if line.name.startswith("Stream"):
                        for event in line.events:
                            stats = dict(event.stats)
                            name = str(stats.get("hlo_op", ""))
                            place = str(stats.get("tf_op", stats.get("name", "")))
                            found.append((event.name, name, place, event.duration_ns))
        path.unlink()
        return _kernels(found, steps, wall)


class OnTorch:
    """The common part of both sides on torch."""

    def start_torch(self):
        import torch

        self._torch = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
        torch.zeros(1, device=self.device)

    def synchronize(self):
        if self.device == "cuda":
            self._torch.cuda.synchronize()

    def memory(self):
        if self.device != "cuda":
            return {}
        peak = self._torch.cuda.max_memory_allocated()
        self._torch.cuda.reset_peak_memory_stats()
        return {"peak_gib": round(peak / 2**30, 2)}

    def release_memory(self):
        if self.device == "cuda":
            self._torch.cuda.empty_cache()

    def synchronized(self, function):
        def step():
            function()
            self.synchronize()

        return step

    def profile(self, folder):
        """Returns the kernels of some training steps, from torch's profiler."""
        from torch.profiler import ProfilerActivity
        from torch.profiler import profile as run

        steps = 3
        step = self.once("train_labelled") or self.once("train")
        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        before = time.perf_counter()
        with run(activities=activities) as profiler:
            for _ in range(steps):
                step()
        wall = time.perf_counter() - before
        if folder:
            table = profiler.key_averages().table(
                sort_by="self_cuda_time_total", row_limit=60, max_name_column_width=90
            )
            table += profiler.key_averages().table(
                sort_by="self_cpu_time_total", row_limit=40, max_name_column_width=60
            )
            name = f"{self.name}-{self.preset}-{self.precision}.txt"
            (pathlib.Path(folder) / name).write_text(table)
        found = [
            (event.name, "", "", event.device_time_total * 1000)
            for event in profiler.events()
            if str(event.device_type).endswith("CUDA")
        ]
        return _kernels(found, steps, wall)


class OursOnTorch(OnTorch, Ours):
    def start_device(self):
        self.start_torch()

    def on_device(self, data):
        import keras

        return keras.tree.map_structure(
            lambda x: self._torch.from_numpy(x).to(self.device), data
        )

    def versions(self):
        return {**super().versions(), "torch": self._torch.__version__}

    def train(self):
        return self.synchronized(lambda: self.model.train_function((self.data,)))

    def put_back(self):
        """Does nothing: a step on torch changes the variables themselves."""

    def forward(self, count):
        images = self.on_device(self.images(count))

        def run():
            with self._torch.no_grad():
                return self.model(images, training=False)

        return self.synchronized(run)

    def detect(self, count):
        images = self.on_device(self.images(count))
        self.model.make_predict_function()
        return self.synchronized(lambda: self.model.predict_function(((images,),)))


class Peer(OnTorch, Side):
    """PyTorch effdet in its best setting: channels last, autocast, fused updates."""

    def prepare(self):
        mark = Marks()
        self.start_torch()
        mark("framework")
        import effdet  # noqa: F401
        import timm
        from timm.utils import ModelEmaV3

        mark("import")
        torch = self._torch
        torch.manual_seed(0)
        self.is_compiled = self.name == "peer_compiled"
        bench = self._bench("train")
        mark("build")
        averages = ModelEmaV3(bench, decay=0.9998, foreach=True)
        optimizer = torch.optim.SGD(
            bench.parameters(),
            lr=0.01,
            momentum=0.9,
            weight_decay=4e-5,
            fused=self.device == "cuda",
        )
        labeler, bench.anchor_labeler = bench.anchor_labeler, None
        network, loss_of = bench.model, bench.loss_fn
        if self.is_compiled:
            network = torch.compile(network, dynamic=False)
            loss_of = torch.compile(loss_of, dynamic=False)
        boxes, labels = self.truth(self.batch)
        images = self._normalized(self.batch)
        boxes = torch.from_numpy(boxes).to(self.device)
        classes = torch.from_numpy(labels + 1.0).to(self.device)
        targets = labeler.batch_label_anchors(boxes, classes)

        def step(targets):
            optimizer.zero_grad(set_to_none=True)
            with self._autocast():
                outputs = network(images)
            # Like its `jit_loss` with AMP, the loss takes logits in float32.
            outputs = ([x.float() for x in level] for level in outputs)
            loss, _, _ = loss_of(*outputs, *targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(bench.parameters(), 10.0)
            optimizer.step()
            averages.update(bench)

        def step_and_match():
            step(labeler.batch_label_anchors(boxes, classes))

        self._cases["train"] = self.synchronized(step_and_match)
        self._cases["train_labelled"] = self.synchronized(lambda: step(targets))
        mark("data")
        self._cases["train"]()
        mark("first_step")
        for _ in range(1 if self.quick else 4):
            self._cases["train"]()
        mark("later_steps")
        versions = {"torch": torch.__version__, "timm": timm.__version__}
        return {**mark.seconds, **self.memory(), "versions": versions}

    def _bench(self, task):
        import effdet

        bench = effdet.create_model(
            self.peer_name,
            bench_task=task,
            bench_labeler=task == "train",
            image_size=(self.size, self.size),
            num_classes=NUM_CLASSES,
            pretrained=False,
            pretrained_backbone=False,
        )
        bench = bench.train() if task == "train" else bench.eval()
        return bench.to(self.device, memory_format=self._torch.channels_last)

    def _normalized(self, count):
        torch = self._torch
        images = torch.from_numpy(self.images(count).transpose(0, 3, 1, 2) / 64.0 - 2.0)
        images = images.to(self.device, dtype=torch.float32)
        return images.contiguous(memory_format=torch.channels_last)

    def _autocast(self):
        return self._torch.autocast(
            self.device, self._torch.bfloat16, enabled=self.precision == "bfloat16"
        )

    def forward(self, count):
        return self._inference(self._bench("predict").model, count)

    def detect(self, count):
        bench = self._bench("predict")
        if self.is_compiled:
            bench.model = self._compiled_for(bench.model, count)
        return self._inference(bench, count, compiles=False)

    def _compiled_for(self, network, count):
        # CUDA graphs help if launching kernels takes longer than running them.
        mode = "reduce-overhead" if count == 1 else "default"
        return self._torch.compile(network, dynamic=False, mode=mode)

    def _inference(self, network, count, compiles=True):
        if self.is_compiled and compiles:
            network = self._compiled_for(network, count)
        images = self._normalized(count)

        def run():
            with self._torch.inference_mode(), self._autocast():
                return network(images)

        return self.synchronized(run)


def _kernels(found, steps, wall):
    """Returns the kernels that take the most time, in milliseconds per step."""
    total, by_name = 0.0, {}
    for name, operation, place, nanoseconds in found:
        known = by_name.setdefault((name, operation, place), [0.0, 0])
        known[0] += nanoseconds / 1e6 / steps
        known[1] += 1
        total += nanoseconds / 1e6 / steps
    top = sorted(by_name.items(), key=lambda item: -item[1][0])
    return {
        "milliseconds_of_a_step_with_profiler": round(1000 * wall / steps, 2),
        "milliseconds_of_kernels": round(total, 2),
        "kernels_in_a_step": len(found) / steps,
        "top": [
            [name[:110], operation[:60], place[-120:], round(ms, 3), count / steps]
            for (name, operation, place), (ms, count) in top[:120]
        ],
    }


if __name__ == "__main__":
    main()
