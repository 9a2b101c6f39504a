"""Enqueues a job over HTTP: python3 producer.py KIND [PAYLOAD]. It needs only the standard library."""

import json
import os
import sys
import urllib.request
import uuid

SERVER = os.environ.get("JQ_SERVER", "http://127.0.0.1:7070")


def enqueue(jobs, **more):
    # If an answer is lost, a repeat with the same key returns the first answer and adds no second job.
    headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
    if token := os.environ.get("JQ_TOKEN"):
        headers["Authorization"] = "Bearer " + token
    body = json.dumps({"jobs": jobs, **more}).encode()
    for attempt in range(5):
        try:
            request = urllib.request.Request(SERVER + "/v1/jobs", body, headers)
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)["jobs"]
        except urllib.error.HTTPError as refused:
            if refused.code < 500:
                sys.exit(json.load(refused)["detail"])
        except OSError as lost:
            print("again, for", lost, file=sys.stderr)
    sys.exit("the server does not answer")


if __name__ == "__main__":
    payload = json.loads(sys.argv[2]) if len(sys.argv) > 2 else None
    for job in enqueue([{"kind": sys.argv[1], "payload": payload}]):
        print("job", job["id"])
