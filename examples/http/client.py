# client.py
# Enqueues a job: python3 client.py KIND [PAYLOAD]. Other programs import it.
import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid

SERVER = os.environ.get("JQ_SERVER", "http://127.0.0.1:7070")


def call(method, path, body=None, key="", until=float("inf")):
    """Repeats a call until it is answered, or until a time. With a key, the repeat of an enqueue adds nothing twice."""
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Idempotency-Key"] = key
    if token := os.environ.get("JQ_TOKEN"):
        headers["Authorization"] = "Bearer " + token
    text = None if body is None else json.dumps(body).encode()
    while (left := until - time.monotonic()) > 0:
        wait = 1
        try:
            request = urllib.request.Request(SERVER + path, text, headers, method=method)
            with urllib.request.urlopen(request, timeout=min(left, 60)) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as refused:
            if refused.code not in (429, 500, 502, 503, 504):
                problem = json.load(refused)
                sys.exit(problem["title"] + ": " + problem.get("detail", ""))
            wait = int(refused.headers.get("Retry-After", 1))
        except (OSError, http.client.HTTPException):
            pass  # no connection, or the answer was lost
        time.sleep(max(0, min(wait, until - time.monotonic())))
    raise TimeoutError("no answer in time")


def enqueue(jobs, **more):
    return call("POST", "/v1/jobs", {"jobs": jobs, **more}, key=str(uuid.uuid4()))["jobs"]


if __name__ == "__main__":
    payload = json.loads(sys.argv[2]) if len(sys.argv) > 2 else None
    print("job", enqueue([{"kind": sys.argv[1], "payload": payload}])[0]["id"])
