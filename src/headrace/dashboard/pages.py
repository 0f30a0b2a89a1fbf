"""The files of the page: the front end as it was built, or a page that says how to build it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.staticfiles import StaticFiles

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

    Scope = MutableMapping[str, Any]

#: Where `make frontend` puts what it has built; part of the wheel.
STATIC = Path(__file__).with_name("static")

_NOT_BUILT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Headrace: the page has not been built</title>
<body>
<h1>The page has not been built</h1>
<p>The dashboard's backend is running, but its front end is not part of this installation yet.</p>
<p>In the repository, with Node.js installed: <code>make frontend</code>, then load this page again.</p>
<p>The data is there without it: <a href="api/jobs">api/jobs</a>, <a href="api/pipeline">api/pipeline</a>,
<a href="api/openapi.json">api/openapi.json</a>.</p>
</body>
</html>
"""


class Pages(StaticFiles):
    """Serves the built files; those with a hash in their name may be kept for ever, the others are asked for again."""

    def __init__(self, directory: Path = STATIC) -> None:
        super().__init__(directory=directory, check_dir=False)
        self._root = directory

    @property
    def built(self) -> bool:
        """Whether there is a page to serve."""
        return (self._root / "index.html").is_file()

    def index(self) -> Response:
        """The page itself."""
        if not self.built:
            return HTMLResponse(_NOT_BUILT, status_code=503, headers={"Cache-Control": "no-store"})
        return FileResponse(self._root / "index.html", headers={"Cache-Control": "no-cache"})

    async def check_config(self) -> None:
        """Accept that there is no directory: that the page has not been built is an answer, not a failure."""
        if self._root.exists():
            await super().check_config()

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Answer with a file."""
        if path in ("", ".", "index.html"):
            return self.index()
        response = await super().get_response(path, scope)
        lasting = "public, max-age=31536000, immutable" if path.startswith("assets/") else "no-cache"
        response.headers["Cache-Control"] = lasting
        return response
