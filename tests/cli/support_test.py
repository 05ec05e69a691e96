#!/usr/bin/env python3
"""What the scripted tests share, where it could hide a fault: a launcher that dies of itself, told from a job that fails."""

import signal
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

SAID = """renai: rank 0 on vm: rank 0 did not get through MPI_Init within the watchdog time; another rank did not come along
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[39133,1],0]
  Exit code:    6
--------------------------------------------------------------------------
"""
TRACE = """[vm:17041] *** Process received signal ***
[vm:17041] Signal: Segmentation fault (11)
[vm:17041] Signal code: Address not mapped (1)
[vm:17041] Failing at address: 0x18
[vm:17041] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x3c050)[0x7f3a5c65b050]
[vm:17041] [ 1] /lib/x86_64-linux-gnu/libevent_core-2.1.so.7(event_del+0x2b)[0x7f3a5c2b11eb]
[vm:17041] [ 2] /usr/lib/x86_64-linux-gnu/libpmix.so.2(PMIx_server_finalize+0x53c)[0x7f3a5a0e6d3c]
[vm:17041] [ 3] mpirun(+0x1349)[0x55d1b0d4b349]
[vm:17041] *** End of error message ***
"""


class ExitCodeTest(unittest.TestCase):
    def code(self, returncode, stdout):
        return renai_cli.exit_code(subprocess.CompletedProcess(["mpirun"], returncode, stdout))

    def test_a_launcher_that_dies_at_its_end(self):
        self.assertEqual(self.code(-signal.SIGSEGV, SAID + TRACE), 6)
        self.assertEqual(self.code(-signal.SIGSEGV, SAID.replace("code:    6", "code:    70") + TRACE + "more\n"), 70)

    def test_nothing_else_passes_for_it(self):
        died = -signal.SIGSEGV
        for returncode, stdout in (
                (died, SAID),  # No trace: of whom it was is not known.
                (died, TRACE),  # No rank's code was told.
                (died, SAID + TRACE.replace("PMIx_server_finalize", "PMIx_Finalize")),  # In a rank.
                (died, SAID + TRACE.replace("PMIx_server_finalize", "PMIx_server_init")),
                (died, SAID + TRACE.replace("libpmix.so.2", "renai")),
                (died, SAID + TRACE.replace("*** End of error message ***", "")),
                (died, SAID + TRACE.replace("17041", "17050").replace("server_finalize", "server_init") + TRACE),  # Two died.
                (died, SAID + "renai: PMIx_server_finalize+0x53c\n"),
                (-signal.SIGABRT, SAID + TRACE), (139, SAID + TRACE), (0, SAID + TRACE), (1, SAID + TRACE)):
            with self.subTest(returncode=returncode, stdout=stdout):
                self.assertEqual(self.code(returncode, stdout), returncode)

    def test_other_codes_are_what_they_are(self):
        for code in (0, 2, 6, 70, 134, -signal.SIGKILL):
            self.assertEqual(self.code(code, SAID), code)


if __name__ == "__main__":
    renai_cli.main()
