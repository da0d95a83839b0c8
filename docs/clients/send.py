#!/usr/bin/env python3
"""Send one text: send.py NUMBER TEXT, with BASE_URL, API_KEY and API_TOKEN in the environment.

Prints the messageId and exits with 0; 1: not sent; 2: called wrongly; 3: nobody
knows whether it was sent. Optional: IDEMPOTENCY_KEY, ATTEMPTS (5), and in seconds
MAX_WAIT between two attempts (60) and TIMEOUT of one (60).
"""
import http.client
import json
import os
import random
import sys
import time
import uuid
from urllib.parse import urlsplit

ATTEMPTS = int(os.environ.get("ATTEMPTS", 5))
MAX_WAIT = float(os.environ.get("MAX_WAIT", 60))
TIMEOUT = float(os.environ.get("TIMEOUT", 60))  # longer than the longest options.delay you use


class NotSent(Exception):
    """The message was certainly not sent."""


class Unknown(Exception):
    """The message may have been sent, or not."""


def send(number, text, key):
    """Send a text and return its messageId. The key belongs to this one message."""
    base = urlsplit(os.environ["BASE_URL"].rstrip("/"))
    path = base.path + "/message/sendText/" + os.environ["API_TOKEN"]
    body = json.dumps({"number": number, "textMessage": {"text": text}}).encode()
    headers = {"apikey": os.environ["API_KEY"], "Content-Type": "application/json", "Idempotency-Key": key}
    connect = http.client.HTTPSConnection if base.scheme == "https" else http.client.HTTPConnection
    unanswered = False  # an attempt ended so that it may have been the one that sent
    for attempt in range(ATTEMPTS):
        retry_after, connected = "", False
        connection = connect(base.netloc, timeout=TIMEOUT)
        try:
            connection.connect()
            connected = True
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            retry_after = response.getheader("Retry-After", "")
            message_id, problem, error = parse(response.read())
            if message_id:
                return message_id
            if error and not error["retryable"]:
                if error["code"] in ("delivery_unknown", "internal_error"):
                    raise Unknown(problem)
                # A 401 says nothing of the attempts before it; every other refusal does.
                raise (Unknown if unanswered and error["code"] == "unauthorized" else NotSent)(problem)
            if not error:  # of a proxy: it refused (3xx, 4xx), or it does not know either
                problem = f"an answer {response.status} that is not the service's"
                if 300 <= response.status < 500 and response.status != 429:
                    raise (Unknown if unanswered else NotSent)(problem)
                unanswered = True
        except (OSError, http.client.HTTPException) as e:
            problem = f"no answer: {e!r}"
            unanswered = unanswered or connected
        finally:
            connection.close()
        if attempt + 1 < ATTEMPTS:
            asked = int(retry_after) if retry_after.isdecimal() else 0
            time.sleep(min(MAX_WAIT, asked + random.uniform(0, 2**attempt)))
    raise (Unknown if unanswered else NotSent)(f"{problem} ({ATTEMPTS} attempts)")


def parse(content):
    """Return messageId, message and error; None for what is not there."""
    try:
        answer = json.loads(content)
        if answer["status"] == "success":
            return answer["data"]["messageId"], None, None
        error = answer["error"]
        return None, answer["message"], {"code": error["code"], "retryable": error["retryable"]}
    except (ValueError, TypeError, KeyError):  # not an answer of the service
        return None, None, None


def main():
    missing = [name for name in ("BASE_URL", "API_KEY", "API_TOKEN") if not os.environ.get(name)]
    if len(sys.argv) != 3 or missing or not os.environ["BASE_URL"].startswith(("http://", "https://")):
        print(__doc__, file=sys.stderr)
        return 2
    # Once for each message, before the first attempt. Keep it with the message (in the
    # order's row, in the job), so that a program that starts again uses the same one.
    key = os.environ.get("IDEMPOTENCY_KEY") or str(uuid.uuid4())
    try:
        print(send(sys.argv[1], sys.argv[2], key))
    except NotSent as e:
        print(f"not sent: {e}", file=sys.stderr)
        return 1
    except Unknown as e:
        print(f"unknown whether it was sent: {e}\nIDEMPOTENCY_KEY={key} asks again and cannot send twice", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
