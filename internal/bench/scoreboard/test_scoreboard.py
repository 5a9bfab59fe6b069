"""The judges find nothing in a limiter that keeps its promise, and what one does that has another limit or rate.

python3 -m unittest -v test_scoreboard, in this folder; make scoreboard runs it first.
"""

import random
import unittest

import scoreboard as board


class Ideal:
    """Limiters that decide at an instant between sent and received."""

    def __init__(self, kind, units=board.UNITS, rate=board.UNITS / board.WINDOW):
        self.kind, self.units, self.rate = kind, units, rate
        self.level, self.at, self.start, self.now, self.last, self.until = units, 0.0, -1e9, 0, 0, 1e12

    def allow(self, at):
        if self.kind == "bucket":
            self.level, self.at = min(self.units, self.level + (at - self.at) * self.rate), at
            ok = self.level >= 1
            self.level -= ok
            return ok
        if self.kind == "chain" and at > self.until:
            self.start, self.now, self.last = -1e9, 0, 0
        passed = (at - self.start) // board.WINDOW
        if self.kind == "clock" or self.kind == "chain" and passed == 1:
            start = at // board.WINDOW * board.WINDOW if self.kind == "clock" else self.start + board.WINDOW
        else:
            start = at if passed >= 1 else self.start
        if start > self.start:
            self.last = self.now if start - self.start < 1.5 * board.WINDOW and self.kind != "first" else 0
            self.start, self.now = start, 0
        share = (1 - (at - self.start) / board.WINDOW) * self.last
        ok = int(share + self.now) + 1 <= self.units
        self.now += ok
        if ok:
            self.until = at + int(self.start + 2 * board.WINDOW - at)
        return ok


def history(limiter, seed):
    draw, calls, free = random.Random(seed), [], 0
    for at, key in board.load(1_000_000):
        if key == ("pause", "edge", "even", "burst-1")[seed % 4]:
            at = max(at, free)
            sent, free = at - draw.expovariate(2000), at + 1e-6
            calls.append({"sent": sent, "received": at + draw.expovariate(2000), "admitted": limiter.allow(at)})
    return sorted(calls, key=lambda c: c["sent"])


class TheJudges(unittest.TestCase):
    JUDGES = {"bucket": board.Bucket(), "first": board.Windows("first"), "chain": board.Windows("chain", True), "clock": board.Windows("clock", True)}

    def test_a_promise_that_is_kept(self):
        for kind, judge in self.JUDGES.items():
            for seed in range(40):
                calls = history(Ideal(kind), seed)
                self.assertEqual((judge.over(calls), judge.needless(calls)), (0, 0), (kind, seed))

    def test_other_limits(self):
        for kind, judge in self.JUDGES.items():
            for seed in range(4):
                over, under = history(Ideal(kind, board.UNITS + 3), seed), history(Ideal(kind, board.UNITS - 3), seed)
                self.assertGreater(judge.over(over), 0, (kind, seed))
                self.assertGreater(judge.needless(under), 0, (kind, seed))

    def test_other_rates(self):
        judge = board.Bucket()
        self.assertGreater(judge.over(history(Ideal("bucket", rate=11), 0)), 0)
        self.assertGreater(judge.needless(history(Ideal("bucket", rate=9), 0)), 0)


if __name__ == "__main__":
    unittest.main()
