"""What the scripted tests of the GPU share: the GPUs here, data sets, jobs watched from outside that leave nothing.

RENAI_SUITE_DEVICE   cuda (default), or cpu: the same tests on the CPU, small and in fp32, to try the tests themselves
RENAI_FULL=1         full step counts and the slow tests
RENAI_SUITE_SHARED=1 several ranks share one GPU where there are too few; they talk through sockets, which is slow
RENAI_SUITE_JOBS     jobs of one rank that run side by side (default 3 on a GPU, 1 on the CPU)
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import renai_cli

DEVICE = os.environ.get("RENAI_SUITE_DEVICE", "cuda")
ON_CPU = DEVICE == "cpu"
SHARED = os.environ.get("RENAI_SUITE_SHARED", "") == "1" and not ON_CPU
FULL = os.environ.get("RENAI_FULL", "") == "1"
JOBS = int(os.environ.get("RENAI_SUITE_JOBS", "1" if ON_CPU else "3"))
PRECISIONS = ("fp32",) if ON_CPU else ("fp32", "bf16", "fp16")
# Samples, batch and validation samples of the synthetic sets: every epoch ends in a partial batch and drops some.
TRAIN, BATCH, VAL = (77, 16, 21) if ON_CPU else (1003, 64, 150)


def query_gpus(fields):
    """One list of texts for each GPU that nvidia-smi reports and CUDA_VISIBLE_DEVICES does not hide."""
    try:
        process = subprocess.run(["nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader,nounits"], timeout=60,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[word.strip() for word in line.split(",")] for line in process.stdout.splitlines() if line.strip()]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return rows
    return rows[:len([word for word in visible.split(",") if word.strip() not in ("", "-1")])]


def visible_devices():
    """The GPUs as CUDA_VISIBLE_DEVICES would name them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given:
        return [word.strip() for word in given.split(",")]
    return [row[0] for row in query_gpus("index")]


def memory_used_mib():
    """Device memory in use on all GPUs, by anybody. Units: MiB."""
    return [int(row[0]) for row in query_gpus("memory.used")]


GPUS = [] if ON_CPU else query_gpus("uuid")


def has_option(command, option):
    """Whether the help of a command lists an option or subcommand; a build made before it does not."""
    text = renai_cli.run([renai_cli.renai(), *command, "--help"]).stdout
    return any(option in line.replace(",", " ").split()[:2] for line in text.splitlines())


def session_processes(session):
    """(pid, state, name) of the living processes of a session; a zombie is not one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue
        name = text[text.index("(") + 1:text.rindex(")")]
        fields = text[text.rindex(")") + 2:].split()
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append((int(folder.name), fields[0], name))
    return found


def end_session(session):
    """Ends what is left of a job: first the launcher may clear up, then everything goes."""
    for how, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
        for pid, _, _ in session_processes(session):
            try:
                os.kill(pid, how)
            except OSError:
                pass
        end = time.monotonic() + patience
        while session_processes(session) and time.monotonic() < end:
            time.sleep(0.05)


def end_all(*_):
    """The suite's time limit: jobs run in sessions of their own, so nobody else ends them."""
    for session in list(Job.running):
        end_session(session)
    os._exit(1)


class Job:
    """A finished job: returncode and stdout as subprocess has them, and what was seen from outside.

    fault_at: when a rank of it first stood still or was gone while another ran (monotonic seconds), or None.
    ended_at, wall_end: its end, monotonic and by the clock of files.
    left: processes that outlived the launcher by more than a second.
    """

    running = set()  # Sessions of jobs that have not ended.

    def __init__(self, command, ranks, timeout, env, cwd):
        program = os.path.basename(renai_cli.renai())[:15]
        with tempfile.TemporaryFile("w+") as output:
            start = time.monotonic()
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, cwd=cwd, env=env, start_new_session=True)
            Job.running.add(process.pid)
            self.fault_at, self.timed_out, most = None, False, 0
            while process.poll() is None:
                if ranks > 1 and self.fault_at is None:
                    own = [state for _, state, name in session_processes(process.pid) if name == program]
                    most = max(most, len(own))
                    if most == ranks and ("T" in own or 0 < len(own) < ranks):
                        self.fault_at = time.monotonic()
                if time.monotonic() - start > timeout:
                    self.timed_out = True
                    end_session(process.pid)
                    process.wait()
                    break
                time.sleep(0.02)
            self.ended_at, self.wall_end = time.monotonic(), time.time()
            self.seconds = self.ended_at - start
            while session_processes(process.pid) and time.monotonic() - self.ended_at < 1.0:
                time.sleep(0.05)
            self.left = session_processes(process.pid)
            end_session(process.pid)
            Job.running.discard(process.pid)
            output.seek(0)
            self.stdout = output.read()
            self.returncode = process.returncode
        if self.timed_out:
            self.returncode = 124
            self.stdout += f"\n(ended after {timeout} s)\n"


def launch(ranks, *arguments, timeout=120, env=None, cwd=None, launcher=(), wrapper=()):
    """Runs renai on a number of ranks: one directly, more through mpirun with `launcher`'s options; each rank within
    `wrapper`."""
    command = [*wrapper, renai_cli.renai(), *arguments]
    if ranks > 1:
        command = [renai_cli.SOURCE / "ci" / "mpiexec.sh", ranks, *launcher, *command]
    return Job(command, ranks, timeout, env or renai_cli.environment(NCCL_NVLS_ENABLE="0"), cwd)


def together(calls):
    """Results of functions of one-rank jobs, a few at a time, in the order given."""
    with ThreadPoolExecutor(max_workers=max(1, JOBS)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


class DeviceTest(renai_cli.FolderTest):
    """A test that skips where there is no GPU."""

    gpus_needed = 1

    @classmethod
    def setUpClass(cls):
        if not ON_CPU and os.environ.get("RENAI_HAVE_CUDA", "ON") == "OFF":
            raise unittest.SkipTest("this build has no CUDA leaves")
        if not ON_CPU and len(GPUS) < (1 if SHARED else cls.gpus_needed):
            raise unittest.SkipTest(f"{len(GPUS) or 'no'} GPU here, {cls.gpus_needed} needed")
        cls.plan_cache = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.plan_cache.cleanup)
        cls.takes_cache = has_option(["train"], "--plan-cache")

    def two_ranks(self):
        """Whether two ranks have a device each."""
        return ON_CPU or SHARED or len(GPUS) >= 2

    def require_two_ranks(self):
        if not self.two_ranks():
            self.skipTest("one GPU here, 2 needed")

    def require_cuda(self):
        if ON_CPU:
            self.skipTest("not on the CPU")

    def synthetic(self, name="data", side=32, channels=3, train=TRAIN, val=VAL, **options):
        """A packed set of learnable random images."""
        out = self.folder / name
        words = ["pack", "synthetic", "--out", out, "--train", train, "--val", val, "--height", side, "--width", side,
                 "--channels", channels]
        for key, value in options.items():
            words += ["--" + key.replace("_", "-"), value]
        self.succeeds(renai_cli.run([renai_cli.renai(), *words]))
        return out

    def train_words(self, name, data, **options):
        """Arguments of a training run `name`; an option given as None is left out, a flag is True or False."""
        words = {"data": data, "run_dir": self.folder / name, "trace": self.folder / f"{name}.trace", "device": DEVICE,
                 "global_batch": BATCH, "lr": 0.02, "verify_every": 20, "log_every": 20}
        if SHARED:
            words["allow_shared_gpu"] = True
        if self.takes_cache:
            words["plan_cache"] = self.plan_cache.name
        words.update(options)
        text = ["train"]
        for key, value in words.items():
            if value is False:
                text.append("--no-" + key.replace("_", "-"))
            elif value is not None:
                text += ["--" + key.replace("_", "-")] + ([] if value is True else [value])
        return text

    def train(self, name, data, ranks=1, job=None, **options):
        """Trains; returns the trace."""
        self.succeeds(launch(ranks, *self.train_words(name, data, **options), **(job or {})))
        return self.folder / f"{name}.trace"

    def summary(self, name):
        return json.loads((self.folder / name / "summary.json").read_text())

    def compare(self, a, b):
        return renai_cli.run([renai_cli.renai(), "trace-diff", a, b])

    def same(self, a, b, steps):
        process = self.compare(a, b)
        self.assertEqual(process.stdout.strip(), f"identical over {steps} steps", f"{a.name} {b.name}")
        self.assertEqual(process.returncode, 0)

    def differs(self, a, b, header=None):
        process = self.compare(a, b)
        self.fails(process, 1, "first difference at step")
        if header:
            self.assertIn("header differs in '" + header + "'", process.stdout)

    def nothing_left(self, job):
        self.assertEqual(job.left, [], "processes outlived the job\n" + job.stdout)


def say(text):
    """A measured value, for the log."""
    print(text, file=sys.stderr, flush=True)


def main():
    """renai_cli's main, which ends what it started when it is told to stop."""
    signal.signal(signal.SIGTERM, end_all)
    renai_cli.main()
