"""Keeps a schedule over HTTP: python3 schedule.py NAME CRON KIND [PAYLOAD] previews it, puts it and runs it once.
It needs only the standard library."""

import json
import os
import sys
import urllib.parse
import urllib.request

SERVER = os.environ.get("JQ_SERVER", "http://127.0.0.1:7070")


def call(method, path, body=None):
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get("JQ_TOKEN"):
        headers["Authorization"] = "Bearer " + token
    text = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(SERVER + "/v1/schedules/" + path, text, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        sys.exit(json.load(refused)["detail"])


if __name__ == "__main__":
    name, cron, kind, *payload = sys.argv[1:]
    path = urllib.parse.quote(name, safe="")
    job = {"kind": kind, "payload": json.loads(payload[0]) if payload else None}
    for time in call("POST", "preview", {"cron": cron, "timezone": "Europe/Berlin", "count": 2})["times"]:
        print("would run at", time)
    schedule = call("PUT", path, {"cron": cron, "timezone": "Europe/Berlin", "job": job})
    print("next at", schedule["next_at"])
    print("job", call("POST", path + "/run")["id"])
