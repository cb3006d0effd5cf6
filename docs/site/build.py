"""Builds the documentation site: build.py FOLDER

Pages are the Markdown files of the repository, as GitHub shows them; docs/SUMMARY.md is the navigation. Files of source code that
a page links to become pages, too. A link that leads nowhere, and a page that is not reached, fail the build.
"""

import html
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
SUMMARY = PurePosixPath("docs/SUMMARY.md")
FORMATTER = HtmlFormatter(cssclass="code")
IMAGES = {".webp", ".png", ".svg"}


def coloured(code, language):
    try:
        lexer = get_lexer_by_name(language) if language else TextLexer()
    except ClassNotFound:
        lexer = TextLexer()
    return highlight(code, lexer, FORMATTER)


def anchor(heading):
    """The name that GitHub gives a heading; xtask/tests/tidy/links.rs has the same."""
    kept = (letter for letter in heading.strip() if letter.isalnum() or letter in "-_ ")
    return "".join(kept).lower().replace(" ", "-")


def output_of(path):
    if path.suffix != ".md":
        return path if path.suffix in IMAGES else PurePosixPath(f"{path}.html")
    return path.with_name("index.html") if path.name == "README.md" else path.with_suffix(".html")


def relative(target, page):
    """The address of one output from another."""
    return os.path.relpath(target, page.parent)


class Site:
    def __init__(self):
        self.markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
        self.markdown.add_render_rule("fence", self.fence)
        self.pages, self.anchors, self.sections = {}, {}, []
        self.headings, self.faults = [], []
        self.waiting = [SUMMARY]
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
        self.files = {PurePosixPath(path) for path in listed.stdout.split("\0") if path}

    @staticmethod
    def fence(_renderer, tokens, i, _options, _env):
        return coloured(tokens[i].content, tokens[i].info.strip())

    def resolve(self, address, page):
        """The file that a link of a page leads to, and the heading there. None for other sites and for items of Rust."""
        url = urlsplit(address)
        if url.scheme or url.netloc or "::" in address:
            return None
        path = os.path.normpath(page.parent / unquote(url.path)) if url.path else page
        path = PurePosixPath(path)
        if path / "README.md" in self.files:
            path /= "README.md"
        return path, unquote(url.fragment)

    def follow(self, token, name, page):
        found = self.resolve(token.attrs[name], page)
        if found is None:
            return
        path, heading = found
        # An absolute path, one outside of the repository, and a file that it does not have would leave the site's folder.
        if path not in self.files or not (ROOT / path).is_file():
            self.faults.append(f"{page}: {token.attrs[name]}: no such file")
            return
        self.waiting.append(path)
        self.headings += [(page, path, heading)] if heading else []
        target = relative(output_of(path), output_of(page))
        token.attrs[name] = f"{target}#{heading}" if heading else target

    def read(self, page):
        tokens = self.markdown.parse((ROOT / page).read_text())
        title, anchors = None, set()
        section = {"url": str(output_of(page)), "title": "", "text": []}
        for i, token in enumerate(tokens):
            if token.type == "heading_open":
                heading = "".join(child.content for child in tokens[i + 1].children)
                title = title or heading
                name = anchor(heading)
                anchors.add(name)
                token.attrs["id"] = name
                self.sections.append(section)
                section = {"url": f"{output_of(page)}#{name}", "title": heading, "page": title, "text": []}
            elif token.type in ("fence", "code_block"):
                section["text"].append(token.content)
            elif token.type == "inline" and tokens[i - 1].type != "heading_open":
                section["text"] += [child.content for child in token.children if child.content]
            for child in token.children or []:
                for name in {"href", "src"} & child.attrs.keys():
                    self.follow(child, name, page)
        self.sections.append(section)
        self.anchors[page] = anchors
        self.pages[page] = (title or str(page), self.markdown.renderer.render(tokens, self.markdown.options, {}))

    def read_source(self, path):
        text = (ROOT / path).read_text()
        try:
            lexer = get_lexer_for_filename(path.name)
        except ClassNotFound:
            lexer = TextLexer()
        self.pages[path] = (str(path), f"<h1>{html.escape(str(path))}</h1>{highlight(text, lexer, FORMATTER)}")

    def gather(self):
        while self.waiting:
            path = self.waiting.pop()
            if path in self.pages:
                continue
            if path.suffix == ".md":
                self.read(path)
            elif path.suffix in IMAGES:
                self.pages[path] = None
            else:
                self.read_source(path)
        for page, path, heading in self.headings:
            if path in self.anchors and heading not in self.anchors[path]:
                self.faults.append(f"{page}: {path}#{heading}: no such heading")
        written = [*ROOT.glob("*.md"), *ROOT.glob("docs/guide/*.md"), *ROOT.glob("docs/reference/*.md")]
        unreached = {PurePosixPath(path.relative_to(ROOT)) for path in written} - self.pages.keys()
        self.faults += [f"{path}: no page leads here; add it to {SUMMARY}" for path in sorted(unreached)]

    def navigation(self, page):
        """docs/SUMMARY.md, with links from this page."""
        tokens = self.markdown.parse((ROOT / SUMMARY).read_text())[3:]
        for token in (child for token in tokens for child in token.children or [] if "href" in child.attrs):
            path, _ = self.resolve(token.attrs["href"], SUMMARY)
            token.attrs["href"] = relative(output_of(path), output_of(page))
            if path == page:
                token.attrs["aria-current"] = "page"
        return self.markdown.renderer.render(tokens, self.markdown.options, {})

    def write(self, folder):
        template = (HERE / "page.html").read_text()
        for page, content in self.pages.items():
            output = output_of(page)
            target = folder / output
            target.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                shutil.copyfile(ROOT / page, target)
                continue
            title, body = content
            values = {
                "title": html.escape(title),
                "language": "zh-CN" if "zh-CN" in page.name else "en",
                "root": relative(PurePosixPath("."), output),
                "navigation": self.navigation(page),
                "body": body,
            }
            text = template
            for name, value in values.items():
                text = text.replace(f"{{{{{name}}}}}", value)
            target.write_text(text)
        for name in ("style.css", "search.js"):
            shutil.copyfile(HERE / name, folder / name)
        with open(folder / "style.css", "a") as style:
            style.write(FORMATTER.get_style_defs(".code"))
        sections = [{**s, "text": " ".join(s["text"])} for s in self.sections if s["text"] and s["title"]]
        (folder / "index.js").write_text(f"window.sections = {json.dumps(sections, ensure_ascii=False)};\n")


def main():
    folder = Path(sys.argv[1])
    site = Site()
    site.gather()
    if site.faults:
        sys.exit("\n".join(site.faults))
    shutil.rmtree(folder, ignore_errors=True)
    site.write(folder)
    print(f"{len(site.pages)} pages and images in {folder}")


if __name__ == "__main__":
    main()
