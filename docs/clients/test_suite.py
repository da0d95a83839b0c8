#!/usr/bin/env python3
"""A test suite against the real service, in its own process, on a free port, without
any account: copy Service and the shape of the tests. MESSAGESENDER names the binary.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import urllib.parse
import urllib.request
from pathlib import Path

ACCOUNT = {"API_KEY": "key-of-the-test-suite", "API_TOKEN": "token_of_the_test_suite"}


class Service:
    """The service as a process of its own; a context manager."""

    def __enter__(self):
        self.dir = tempfile.TemporaryDirectory()
        self.log = open(Path(self.dir.name, "log"), "w+")
        command = [os.environ.get("MESSAGESENDER", "messagesender"), "-addr", "127.0.0.1:0", "-data", self.dir.name + "/data"]
        self.process = subprocess.Popen(command, env=os.environ | ACCOUNT, stdout=subprocess.PIPE, stderr=self.log, text=True)
        # The first line says where; it comes when requests are served.
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            self.process.wait()
            self.log.seek(0)
            problem = self.log.read()
            self.__exit__()
            raise RuntimeError("the service did not start: " + problem)
        self.url = line.removeprefix("listening on ").strip()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()
        self.dir.cleanup()

    def outbox(self, **query):
        """Return the messages that match; wait="5s" waits for the first one."""
        url = self.url + "/outbox/messages?" + urllib.parse.urlencode(query)
        request = urllib.request.Request(url, headers={"apikey": ACCOUNT["API_KEY"]})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["messages"]


def application(number, text):
    """Start the application under test; here it is the program beside this one."""
    program = Path(__file__).with_name("send.py")
    env = os.environ | ACCOUNT | {"BASE_URL": service.url}
    return subprocess.Popen([sys.executable, program, number, text], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def setUpModule():
    global service
    service = unittest.enterModuleContext(Service())


class Notifications(unittest.TestCase):
    # A number for each test keeps the tests apart, also when they run at the same time.

    def test_customer_is_told(self):
        with application("15550000001", "Your parcel is on its way") as sending:
            [message] = service.outbox(number="15550000001", wait="5s")
            message_id, _ = sending.communicate()
        self.assertEqual(message["text"], "Your parcel is on its way")
        self.assertEqual(message["messageId"], message_id.strip())

    def test_customer_who_cannot_be_reached_is_noticed(self):
        # Numbers under 999 fail on purpose.
        with application("9990000422", "Your parcel is on its way") as sending:
            _, problem = sending.communicate()
        self.assertEqual(sending.returncode, 1, problem)
        self.assertEqual(service.outbox(number="9990000422"), [])


if __name__ == "__main__":
    unittest.main()
