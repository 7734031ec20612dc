package httpserver

import (
	"bytes"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
)

// markdown renders the pages of docs, without their HTML.
var markdown = goldmark.New(goldmark.WithExtensions(extension.Table))

// writeRunbook answers with a section of the docs: as a page for browsers, as Markdown for curl.
func writeRunbook(w http.ResponseWriter, r *http.Request, section func(string) string) {
	text := section(r.PathValue("section"))
	w.Header().Set("Vary", "Accept")
	switch {
	case text == "":
		http.Error(w, "there is no such section in docs/RUNBOOKS.md, or in the page named before "+
			"the #", http.StatusNotFound)
	case wantsHTML(r):
		document := runbookPage(text, section)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy(document))
		_, _ = w.Write([]byte(document)) // the client may be gone
	default:
		writeText(w, text)
	}
}

var heading = regexp.MustCompile(`(?m)^#+ (.*)$`)

func runbookPage(text string, section func(string) string) string {
	title := "runbook"
	if found := heading.FindStringSubmatch(text); found != nil {
		title = found[1]
	}
	var body bytes.Buffer
	_ = markdown.Convert([]byte(linked(text, section)), &body) // into memory
	return strings.NewReplacer(
		"{{title}}", html.EscapeString(title),
		"{{theme.js}}", source("theme.js"),
		"{{page.css}}", source("page.css"),
		"{{runbook.css}}", source("runbook.css"),
		"{{body}}", body.String(),
	).Replace(source("runbook.html"))
}

var link = regexp.MustCompile(`\[([^\]]+)\]\(([^)\s]+)\)`)

// linked replaces links between the pages by links to where they are served. A page that is not
// embedded becomes its name.
func linked(text string, section func(string) string) string {
	return link.ReplaceAllStringFunc(text, func(found string) string {
		parts := link.FindStringSubmatch(found)
		label, target := parts[1], parts[2]
		place := strings.TrimPrefix(strings.TrimPrefix(target, "RUNBOOKS.md"), "#")
		switch {
		case strings.Contains(target, "://"):
			return found
		case place != "" && section(place) != "":
			return "[" + label + "](" + url.PathEscape(place) + ")"
		case strings.HasPrefix(target, "#"):
			return label
		}
		return label + " (docs/" + target + ")"
	})
}
