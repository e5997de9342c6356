"""In the site, links to files of the repository that are no pages become their names."""

import re

LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]*)[^)]*\)")


def on_page_markdown(markdown, page, config, files):
    """Called by MkDocs for every page."""
    depth = page.file.src_uri.count("/")

    def shown(link):
        outside = link[2].count("../") > depth
        return f"{link[1]}" if outside else link[0]

    return LINK.sub(shown, markdown)
