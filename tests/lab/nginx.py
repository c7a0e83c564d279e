"""The file of nginx around a server of a page of the guide."""

from __future__ import annotations

# What Debian's own nginx.conf has around the file of the page, in folders of this test.
NGINX = """\
daemon off;
{user}
error_log stderr;
pid {folder}/pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    scgi_temp_path {folder}/scgi;
    uwsgi_temp_path {folder}/uwsgi;
    {file}
}}
"""
