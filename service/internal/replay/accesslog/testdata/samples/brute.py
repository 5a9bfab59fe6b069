#!/usr/bin/python3
"""Compute the answers to the samples from traffic.tsv, by the definition and without a log: expected.json.

A request to /search costs 5 units, a POST 2.5, which is rounded up to 3, and any other 1. A limit of n units in w seconds
admits a request if what it admitted to the same client in the w seconds before it, and the request itself, are at most n.
"""
import json, pathlib

HERE = pathlib.Path(__file__).resolve().parent
LIMITS = {"6/3s": (6, 3), "9/5s": (9, 5), "25/1m": (25, 60)}

requests = [line.split("\t") for line in (HERE / "traffic.tsv").read_text().splitlines()]


def cost(method, target):
    return 5 if target.split("?")[0] == "/search" else 3 if method == "POST" else 1


def refused(client_column, units, window):
    admitted, count, clients = [], 0, set()
    for request in requests:
        second, client, need = int(request[0]), request[client_column], cost(request[3], request[4])
        used = sum(n for at, who, n in admitted if who == client and second - window < at <= second)
        if used + need <= units:
            admitted.append((second, client, need))
        else:
            count += 1
            clients.add(client)
    return {"refused": count, "clients": len(clients)}


answers = {
    "requests": len(requests),
    "clients": len({r[1] for r in requests}),
    "units": sum(cost(r[3], r[4]) for r in requests),
    "limits": {text: refused(1, *limit) for text, limit in LIMITS.items()},
}
assert answers["limits"] == {text: refused(2, *limit) for text, limit in LIMITS.items()}, "both addresses name the same clients"
(HERE / "expected.json").write_text(json.dumps(answers, indent="\t") + "\n")
