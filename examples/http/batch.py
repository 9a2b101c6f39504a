"""Enqueues a chain and a batch over HTTP, and waits until the last jobs have ended: python3 batch.py FILE...
The chain: scan, then read. The batch: a frame for each file, and when all have succeeded, an album. It needs only the standard library,
and client.py and flow.py beside it."""

import sys
import uuid

from client import call, enqueue
from flow import ended


def chain(*jobs):
    """Enqueues jobs of which each waits for the one before, and returns the last."""
    return enqueue([{**job, "after": [{"item": i - 1}]} if i > 0 else job for i, job in enumerate(jobs)])[-1]


def batch(jobs, then):
    """Enqueues any number of jobs, and one that runs when all have succeeded. Returns that. The group is open until all are there."""
    group = f"batch-{uuid.uuid4()}"
    last = enqueue([{**then, "after": [{"group": group}]}], open=[group])[0]
    for i in range(0, len(jobs), 1000):
        enqueue([{**job, "group": group} for job in jobs[i:i + 1000]])
    call("POST", f"/v1/groups/{group}/seal")
    return last


if __name__ == "__main__":
    read = chain({"kind": "scan"}, {"kind": "read"})
    album = batch([{"kind": "frame", "payload": file} for file in sys.argv[1:]], {"kind": "album"})
    for last in read, album:
        job = ended(last["id"])
        print("job", job["id"], job["kind"], job["state"])
