"""A page of --html as a browser shows it: headings, cells and texts."""
import html.parser


class Page(html.parser.HTMLParser):
    """Texts of headings and cells; widths of bars."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.headings, self.bars, self.columns, self.all = [], [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
        if tag == "b" and "height:" in given.get("style", ""):
            self.columns.append(float(given["style"].split("height:", 1)[1].split("%")[0]))
        if tag == "i":
            self.bars.append(float(given["style"].split("width:", 1)[1].split("%")[0]))
        if tag in ("td", "th", "h1", "h2", "script", "style"):
            self.open.append(tag)
            if tag in ("h1", "h2"):
                self.headings.append("")

    def handle_endtag(self, tag):
        if self.open and tag == self.open[-1]:
            self.open.pop()

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside in ("td", "th"):
            self.rows[-1][-1] += data
        elif inside in ("h1", "h2"):
            self.headings[-1] += data
        if inside not in ("script", "style"):
            self.all.append(data)

    def text(self):
        return "".join(self.all)

    def row(self, first):
        found = [row for row in self.rows if row and row[0] == first]
        assert found, "no row %r" % first
        return found[0]


class Pages:
    """Opens pages in one browser."""

    def __init__(self, browser):
        self.browser = browser

    def open(self, path, width=1280, dark=False):
        self.browser.open(path, width, dark=dark)
        assert len(self.browser.requests()) == 1, self.browser.requests()
        return self.read()

    def read(self):
        return Page(self.browser.evaluate("document.getElementById('page').outerHTML"))
