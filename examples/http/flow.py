"""Enqueues jobs that wait for each other over HTTP, and waits until the last has ended: python3 flow.py FILE...
For each file: download, then shrink. When all are shrunk: publish. Whatever happens: report. It needs only the standard library, and
client.py beside it."""

import sys

from client import call, enqueue


def flow(files):
    """Returns the jobs. Each names the ones that it waits for by their places in the list, so these come first."""
    jobs, shrunk = [], []
    for file in files:
        jobs.append({"kind": "download", "payload": file})
        jobs.append({"kind": "shrink", "payload": file, "after": [{"item": len(jobs) - 1}]})
        shrunk.append({"item": len(jobs) - 1})
    jobs.append({"kind": "publish", "after": shrunk})
    jobs.append({"kind": "report", "after": [{"item": len(jobs) - 1, "any": True}]})
    return jobs


def ended(id):
    while "finished_at" not in (job := call("GET", f"/v1/jobs/{id}?wait=30s")):
        pass
    return job


if __name__ == "__main__":
    added = enqueue(flow(sys.argv[1:]))
    for job in added:
        print("job", job["id"], job["state"])
    ended(added[-1]["id"])
    for wait in ended(added[-2]["id"])["waits"]:
        job = call("GET", "/v1/jobs/" + wait["id"])
        print("publish had", job["kind"], job["payload"], job.get("result"))
