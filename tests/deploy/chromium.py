"""A headless Chromium that tests drive by its own protocol (Chrome DevTools Protocol) over a pipe: no driver and no package."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests import processes

PROGRAM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


# What gives pages WebGPU where there is no GPU: SwiftShader computes on the processor.
SOFTWARE_GPU: Final = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan")


class Page:
    """One page, without a network. `gpu`: with WebGPU, in software."""

    def __init__(self, url: str, width: int = 900, height: int = 700, gpu: bool = False) -> None:
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.from_, to_write = os.pipe()
        shown = SOFTWARE_GPU if gpu else ("--disable-gpu",)
        command = [str(PROGRAM), "--headless=new", "--no-sandbox", *shown, "--remote-debugging-pipe", "--no-first-run", "--disable-extensions",
                   f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}", "about:blank"]  # fmt: skip
        shell = ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "bash", *command]
        self.process = processes.popen(shell, pass_fds=(to_read, to_write), stderr=subprocess.DEVNULL)
        os.close(to_read), os.close(to_write)
        self.rest, self.count, self.session = b"", 0, ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Network.enable")
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
        self.call("Page.navigate", url=url)

    def call(self, method: str, **parameters: Any) -> Any:
        """The result of a method of the protocol."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters} | ({"sessionId": self.session} if self.session else {})
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                assert select.select([self.from_], [], [], 60)[0], f"Chromium has not answered {method} in 60 s"
                more = os.read(self.from_, 1 << 20)
                assert more, "Chromium has ended"
                self.rest += more
            text, _, self.rest = self.rest.partition(b"\0")
            answer = json.loads(text)
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return answer["result"]

    def value(self, expression: str) -> Any:
        """What JavaScript says."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 60) -> None:
        """Until an expression is true."""
        end = time.monotonic() + seconds
        while not self.value(expression):
            assert time.monotonic() < end, expression
            time.sleep(0.05)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        processes.end(self.process)
        os.close(self.to), os.close(self.from_)
        self.profile.cleanup()
