"""Runs jobs from a server over HTTP, until Ctrl-C: python3 worker.py. It needs only the standard library, and client.py beside it."""

import os
import threading
import time

from client import call

WORKER = f"python-{os.getpid()}"
LEASE = 30  # seconds


def handle(job):
    return {"echo": job["payload"]}


def keep_alive(lease, done):
    """Extends the lease while the job runs. If it is lost, or may be, the work must stop at once."""
    held = time.monotonic() + LEASE * 0.9  # the claim's answer took a while
    while not done.wait(LEASE / 3):
        sent = time.monotonic()
        try:
            [result] = call("POST", "/v1/extend", {"jobs": [lease], "lease": f"{LEASE}s"}, until=held)["results"]
            status = result["status"]
        except BaseException as error:  # a refusal is a SystemExit, which would only end this thread
            status = str(error)
        if status == "ok":
            held = sent + LEASE
        elif status != "busy" and not done.is_set():
            print("job", lease["id"], "was lost:", status, flush=True)
            os._exit(1)


def run(job):
    lease, done = {"id": job["id"], "token": job["token"]}, threading.Event()
    threading.Thread(target=keep_alive, args=(lease, done), daemon=True).start()
    try:
        path, end = "/v1/ack", lease | {"result": handle(job)}
    except Exception as error:
        path, end = "/v1/nack", lease | {"error": repr(error)}
    done.set()
    [result] = call("POST", path, {"jobs": [end]})["results"]
    print("job", job["id"], result["status"], result.get("state", ""), flush=True)


while True:
    claim = {"worker": WORKER, "lease": f"{LEASE}s", "wait": "20s"}
    for job in call("POST", "/v1/claim", claim)["jobs"]:
        run(job)
