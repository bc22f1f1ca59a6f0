"""The tags of a page, for tests of reports."""

import html.parser


class Tags(html.parser.HTMLParser):
    """Collects tags, attributes and text, and sees that tags close."""

    def __init__(self, page, unclosed=("meta", "img")):
        super().__init__()
        self.names, self.attributes, self.text, self.open = [], [], [], []
        self._unclosed = unclosed
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in self._unclosed:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.names.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
