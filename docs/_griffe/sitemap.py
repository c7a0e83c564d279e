"""A hook of mkdocs: no sitemap where the address of the site is not known.

The sitemap of such a site would be empty, which tells search engines that there are no pages.
"""

from typing import Any


def on_post_template(output: str, template_name: str, config: Any) -> str:
    """Return the text of a template; one that is empty is not written."""
    return "" if template_name == "sitemap.xml" and not config.site_url else output
