"""Search with DuckDuckGo's plain HTML page: search.py [--json] [--region us-en] [--limit 10] WORDS…"""

import argparse
import json
import sys
import urllib.parse
import urllib.request
from html.parser import HTMLParser

PAGE = "https://html.duckduckgo.com/html/"
SECONDS = 20
MOST_BYTES = 4_000_000
AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36"


class Results(HTMLParser):
    """Collects title, address and snippet of each result of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self._field = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a result, or its snippet."""
        given = dict(attrs)
        kinds = (given.get("class") or "").split()
        if tag == "a" and "result__a" in kinds:
            self.found.append({"title": "", "url": target(given.get("href") or ""), "snippet": ""})
            self._field = "title"
        elif "result__snippet" in kinds and self.found:
            self._field = "snippet"

    def handle_endtag(self, tag: str) -> None:
        """End what was being read."""
        if tag in ("a", "td", "div"):
            self._field = ""

    def handle_data(self, data: str) -> None:
        """Add to what is being read."""
        if self._field:
            self.found[-1][self._field] += data


def target(link: str) -> str:
    """Return where a result leads, behind DuckDuckGo's redirection."""
    address = urllib.parse.urlsplit(link)
    wrapped = urllib.parse.parse_qs(address.query).get("uddg")
    return wrapped[0] if wrapped else urllib.parse.urljoin(PAGE, link)


def results(page: str) -> list[dict[str, str]]:
    """Return the results on a page, advertisements left out."""
    parser = Results()
    parser.feed(page)
    for result in parser.found:
        result.update({key: " ".join(value.split()) for key, value in result.items()})
    return [result for result in parser.found if "duckduckgo.com/y.js" not in result["url"]]


def ask(words: str, region: str) -> str:
    """Return the page that answers a query."""
    form = urllib.parse.urlencode({"q": words, "kl": region}).encode()
    request = urllib.request.Request(PAGE, data=form, headers={"User-Agent": AGENT})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return bytes(answer.read(MOST_BYTES)).decode("utf-8", "replace")


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="+")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--region", default="wt-wt")
    parser.add_argument("--limit", type=int, default=10)
    given = parser.parse_args()
    try:
        found = results(ask(" ".join(given.words), given.region))[: given.limit]
    except OSError as error:
        sys.stderr.write(f"the search could not be asked: {error}\n")
        return 2
    if given.json:
        sys.stdout.write(json.dumps(found, ensure_ascii=False, indent=1) + "\n")
    else:
        for number, result in enumerate(found, 1):
            sys.stdout.write(f"{number}. {result['title']}\n   {result['url']}\n   {result['snippet']}\n")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
