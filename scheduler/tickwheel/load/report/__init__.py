"""The report of a load run.

`report.build_document` returns one JSON document with all measurements. `report.render_page` returns the document as an
HTML page that contains its plots, so the page needs no other file.

report.py           the document, and the page
document.py         the parts of the document
files.py            the files of the page and the document
plots.py            the plots, as SVG
report.html.jinja   the template of the page
"""
