"""Keeps a schedule over HTTP: python3 schedule.py NAME CRON KIND [PAYLOAD] previews it, puts it and runs it once.
It needs only the standard library, and client.py beside it."""

import json
import sys
import urllib.parse

from client import call

if __name__ == "__main__":
    name, cron, kind, *payload = sys.argv[1:]
    path = "/v1/schedules/" + urllib.parse.quote(name, safe="")
    job = {"kind": kind, "payload": json.loads(payload[0]) if payload else None}
    for time in call("POST", "/v1/schedules/preview", {"cron": cron, "timezone": "Europe/Berlin", "count": 2})["times"]:
        print("would run at", time)
    schedule = call("PUT", path, {"cron": cron, "timezone": "Europe/Berlin", "job": job})
    print("next at", schedule["next_at"])
    print("job", call("POST", path + "/run")["id"])
