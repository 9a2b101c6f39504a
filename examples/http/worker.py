"""Runs jobs from a server over HTTP, until Ctrl-C: python3 worker.py. It needs only the standard library."""

import json
import os
import threading
import urllib.request

SERVER = os.environ.get("JQ_SERVER", "http://127.0.0.1:7070")
WORKER = f"python-{os.getpid()}"
LEASE = 30  # seconds


def post(path, body):
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get("JQ_TOKEN"):
        headers["Authorization"] = "Bearer " + token
    request = urllib.request.Request(SERVER + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def handle(job):
    return {"echo": job["payload"]}


def keep_alive(lease, done):
    """Extends the lease while the job runs. If the lease is lost, the worker must stop at once."""
    while not done.wait(LEASE / 3):
        [result] = post("/v1/extend", {"jobs": [lease], "lease": f"{LEASE}s"})["results"]
        if result["status"] not in ("ok", "busy"):
            print("job", lease["id"], "was lost:", result["status"])
            os._exit(1)


def run(job):
    lease, done = {"id": job["id"], "token": job["token"]}, threading.Event()
    threading.Thread(target=keep_alive, args=(lease, done), daemon=True).start()
    try:
        path, end = "/v1/ack", lease | {"result": handle(job)}
    except Exception as error:
        path, end = "/v1/nack", lease | {"error": repr(error)}
    done.set()
    [result] = post(path, {"jobs": [end]})["results"]
    print("job", job["id"], result["status"], result.get("state", ""), flush=True)


while True:
    claim = {"worker": WORKER, "lease": f"{LEASE}s", "wait": "20s"}
    for job in post("/v1/claim", claim)["jobs"]:
        run(job)
