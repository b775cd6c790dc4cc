#!/usr/bin/env python3
"""How often each algorithm decides wrongly, by `slidegate replay`: on recorded logs, and on traffic made from a seed.

With logs as arguments it prints their tables. Without, it prints docs/accuracy.md with the figures between its marks
made anew from the logs of tests/logs; `BLESS=1 cargo test accuracy` writes that. SLIDEGATE names the binary, which is
else target/release/slidegate.
"""

import heapq
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/accuracy.md"
COUNTER, EXACT, FIXED = "sliding_window_counter", "sliding_log", "fixed_window"


def main():
    if logs := sys.argv[1:]:
        print(by_limit(logs))
        print(by_window(logs))
        return
    # What is smaller shows nothing.
    logs = [log for log in sorted((ROOT / "tests/logs").glob("*.log")) if log.stat().st_size > 200_000]
    with ThreadPoolExecutor() as pool:
        parts = [pool.submit(*part) for part in ((by_limit, logs), (by_window, logs), (generated,), (worst,))]
    limits, windows, made, worst_cases = (part.result() for part in parts)
    parts = {"limits": limits, "windows": windows, **made, "worst": worst_cases}
    sys.stdout.write(filled(PAGE.read_text(), parts))


def filled(page, parts):
    """The page, with each part between its marks."""
    for name, part in parts.items():
        begin, end = f"<!-- {name}: by scripts/accuracy.py -->\n", "<!-- end -->"
        before, found, rest = page.partition(begin)
        _, ends, after = rest.partition(end)
        if not (found and ends):
            sys.exit(f"{PAGE}: there are no marks for {name}")
        page = f"{before}{begin}\n{part}\n{end}{after}"
    return page


# --- recorded logs


def by_limit(logs):
    """Limits of a minute, each as if it were the only one."""
    head = ["log", "limit", *RULES]
    policies = [shadow(f"by-{quota}", f"{quota}/1m") for quota in (5, 10, 30)]
    rows = []
    for log in logs:
        for limit in replay(policies, log)["limits"]:
            if any(did["denied"] for did in limit["algorithms"].values()):
                rows.append([short(log), limit["limit"], *rules(limit)])
    return table(head, rows)


def by_window(logs):
    """Windows of any length, each with the limit that 99 of 100 identifiers stay within at their busiest."""
    head = ["log", "limit", *RULES]
    rows = []
    for log in logs:
        windows = [word for window in ("10s", "1m", "10m", "1h") for word in ("--window", window)]
        told = run(["--suggest", *windows, str(log)])["suggestions"]
        quotas = {one["window"]: one["busiest"]["p99"] for one in told}
        quotas = sorted(quotas.items(), key=lambda one: seconds(one[0]))
        policies = [shadow(f"by-{window}", f"{quota}/{window}") for window, quota in quotas]
        for limit in replay(policies, log)["limits"]:
            rows.append([short(log), limit["limit"], *rules(limit)])
    return table(head, rows)


def short(log):
    return pathlib.Path(log).name.split(".")[0]


def shadow(name, limit):
    return f"{{name: {name}, mode: shadow, limits: [{limit}]}}"


# --- generated traffic


class Random:
    """SplitMix64, so that no version of Python changes a figure."""

    def __init__(self, seed):
        self.state = seed

    def below_one(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        mixed = self.state
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        return ((mixed ^ (mixed >> 31)) >> 11) / 2**53

    def pause(self, mean):
        """Until the next of events that come at any time alike."""
        return -mean * math.log(1 - self.below_one())


class Client:
    """One client under one limit, and the moments of its requests in milliseconds."""

    def __init__(self, row, limit, moments):
        self.row, self.limit, self.moments = row, limit, moments


def steady(mean, requests):
    """Requests as even as a clock's ticks."""
    return [int(number * mean) for number in range(requests)]


def bursts(random, mean, size, requests):
    """Bursts of so many requests, a millisecond apart, that come at any time alike; a size of 1 is a Poisson process."""
    moments, now = [], 0.0
    while len(moments) < requests:
        now += random.pause(mean * size)
        moments.extend(int(now) + place for place in range(size))
    return moments


def phases(random, mean, length, requests):
    """A Poisson process of twice the rate that is on and off by turns, for so long on average."""
    moments, now = [], 0.0
    while len(moments) < requests:
        end = now + random.pause(length)
        while (now := now + random.pause(mean / 2)) < end:
            moments.append(int(now))
        now = end + random.pause(length)
    return moments


def generated():
    random = Random(SEED)
    minute, quota = 60_000, 100
    tables = {
        "demand": [
            Client([f"{demand:g}"], f"{quota}/1m", bursts(random, minute / (demand * quota), 1, many(demand * quota)))
            for demand in (0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 4)
        ],
        "quota": [
            Client([f"{quota}/1m"], f"{quota}/1m", bursts(random, minute / quota, 1, many(quota)))
            for quota in (1, 3, 10, 30, 100, 300)
        ],
        "bursts": [Client(["evenly"], f"{quota}/1m", steady(minute / quota, many(quota)))] + [
            Client([size], f"{quota}/1m", bursts(random, minute / quota, size, many(quota)))
            for size in (1, 3, 10, 30, 100)
        ],
        "phases": [
            Client([f"{quota}/{window}"], f"{quota}/{window}", phases(random, 3000, minute, many(quota)))
            for quota, window in ((5, "15s"), (20, "1m"), (60, "3m"), (200, "10m"), (600, "30m"))
        ],
    }
    heads = {"demand": "demand / limit", "quota": "limit", "bursts": "requests in a burst", "phases": "limit"}
    limits = iter(decided([client for clients in tables.values() for client in clients]))
    written = {}
    for name, clients in tables.items():
        rows = []
        for client in clients:
            limit = next(limits)
            row = [*client.row, *rules(limit)]
            if name == "demand":
                row.append(one_in(wrong(limit["algorithms"][COUNTER], limit["requests"])))
            rows.append(row)
        last = ["0.003 % of all if"] if name == "demand" else []
        written[name] = table([heads[name], *RULES, *last], rows)
    return written


def many(in_a_window):
    """Requests, of at least thirty windows."""
    return int(max(3_000, 30 * in_a_window))


def one_in(share):
    """Which part of all requests those of such clients are, where nobody else has any wrong."""
    if share == 0:
        return "–"
    return f"1 in {share / 0.00003:,.0f}"


def worst():
    """What is as wrong as can be, by construction: 100 in a minute, for 20 minutes where it repeats itself."""
    def every(pattern):
        return [minute * 60_000 + moment for minute in range(20) for moment in pattern]

    def at(second, requests):
        return [int(second * 1000)] * requests

    # As soon as the estimate has room for one more.
    refill = [60_000 + 600 * step + 1 for step in range(100)]
    clients = [
        Client(["100 as a minute ends, then one as soon as one fits"], "100/1m", at(59.9, 100) + refill),
        Client(["100 as a minute ends, 100 as the next begins"], "100/1m", at(59.9, 100) + at(60, 100)),
        Client(["100 as a minute begins, 100 as soon as those are no longer in the window"], "100/1m", at(0, 100) + at(60.1, 100)),
        Client(["100 as each minute begins"], "100/1m", every(at(0, 100))),
        Client(["100 in the middle of each minute"], "100/1m", every(at(30, 100))),
        Client(["100 as each minute ends"], "100/1m", every(at(59.9, 100))),
        Client(["1 every 0.6 s"], "100/1m", every([600 * step for step in range(100)])),
        Client(["1 every 0.5 s"], "100/1m", every([500 * step for step in range(120)])),
    ]
    rows = [[client.row[0], *rules(limit)] for client, limit in zip(clients, decided(clients))]
    return table(["what comes", *RULES], rows)


def decided(clients):
    """What a replay tells of the limit of each client, all of them in one log."""
    policies = [
        f"{{name: client-{place}, match: {{path: [/{place}]}}, limits: [{client.limit}]}}"
        for place, client in enumerate(clients)
    ]
    each = [[(moment, place) for moment in client.moments] for place, client in enumerate(clients)]
    lines = (line(moment, place) for moment, place in heapq.merge(*each))
    limits = replay(policies, "-", "".join(lines))["limits"]
    assert len(limits) == len(clients), "each is asked about"
    return limits


def line(moment, place):
    whole, fraction = divmod(moment, 1000)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(MIDNIGHT + whole))
    return f'10.0.0.{place} - - [{stamp}.{fraction:03}Z] "GET /{place} HTTP/1.1" 200 1\n'


# --- replays, and tables of them


def replay(policies, log, text=""):
    config = "upstream: {address: '127.0.0.1:9'}\npolicies:\n" + "".join(f"- {policy}\n" for policy in policies)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(config)
        file.flush()
        return run(["--config", file.name, str(log)], text)


def run(arguments, text=""):
    binary = os.environ.get("SLIDEGATE", str(ROOT / "target/release/slidegate"))
    done = subprocess.run([binary, "replay", "--json", *arguments], input=text, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


RULES = [
    "requests",
    "exact denies",
    "counter denies",
    "lets in wrongly",
    "denies wrongly",
    "most above",
    "fixed denies",
    "lets in wrongly",
    "denies wrongly",
    "most above",
]


def rules(limit):
    """What each algorithm did, as RULES names it: the most above is in percent of the limit."""
    requests, quota = limit["requests"], int(limit["limit"].split("/")[0])
    cells = [str(requests), percent(limit["algorithms"][EXACT]["denied"], requests)]
    for name in (COUNTER, FIXED):
        did = limit["algorithms"][name]
        cells += [percent(did[key], requests) for key in ("denied", "false_allows", "false_denials")]
        cells.append(f"{100 * did['max_excess'] / quota:.0f} %" if did["max_excess"] else "0")
    return cells


def wrong(did, requests):
    return (did["false_allows"] + did["false_denials"]) / requests


def percent(part, whole):
    share = 100 * part / whole
    return "0" if part == 0 else f"{share:.1f} %" if share >= 0.1 else "< 0.1 %"


def seconds(window):
    return int(window[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[window[-1]]


def table(head, rows):
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


SEED = 1
# At which all of them begin: 2026-01-01T00:00:00Z, where windows of any length begin.
MIDNIGHT = 1_767_225_600

if __name__ == "__main__":
    main()
