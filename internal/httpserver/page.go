package httpserver

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"regexp"
	"strings"
)

// The files of the page are served as one document. A browser fetches only the stream of its data.
//
//go:embed page
var sources embed.FS

// scripts in the order in which they become one.
var scripts = []string{
	"format.js", "dom.js", "chart.js", "table.js", "verdict.js", "pipeline.js", "slot.js",
	"history.js", "lists.js", "trace.js", "stream.js",
}

// page is the document and its Content-Security-Policy.
type page struct {
	plain, packed []byte
	policy        string
}

// newPage makes the document, with links to /runbook/ or without, and with the search or without.
func newPage(withRunbooks, withSearch bool) page {
	var script strings.Builder
	for _, name := range scripts {
		script.WriteString(source(name))
	}
	links := ""
	if withRunbooks {
		links = "runbook/"
	}
	hidden := " hidden"
	if withSearch {
		hidden = ""
	}
	document := strings.NewReplacer(
		"{{search}}", hidden,
		"{{runbooks}}", links,
		"{{theme.js}}", source("theme.js"),
		"{{page.css}}", source("page.css"),
		"{{page.js}}", script.String(),
	).Replace(source("page.html"))

	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(document)) // into memory
	_ = w.Close()
	return page{plain: []byte(document), packed: packed.Bytes(), policy: policy(document)}
}

// source is an embedded file of the page.
func source(name string) string {
	b, err := sources.ReadFile("page/" + name)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// inline matches scripts and styles; a browser hashes everything between the tags.
var inline = regexp.MustCompile(`(?s)<(script|style)[^>]*>(.*?)</(?:script|style)>`)

// policy lets a browser run the document's own script only, connect to this server only, and make
// no markup of text: names of topics and tables come from rows, whose authors are not trusted.
func policy(document string) string {
	allowed := map[string]string{}
	for _, found := range inline.FindAllStringSubmatch(document, -1) {
		sum := sha256.Sum256([]byte(found[2]))
		allowed[found[1]] += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; script-src" + allowed["script"] + "; style-src" + allowed["style"] +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors " +
		"'none'; require-trusted-types-for 'script'; trusted-types 'none'"
}

func (p page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Content-Security-Policy", p.policy)
	head.Set("Vary", "Accept, Accept-Encoding")
	body := p.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		head.Set("Content-Encoding", "gzip")
		body = p.packed
	}
	_, _ = w.Write(body) // the client may be gone
}

// wantsHTML reports whether a browser asks; curl and scripts get text.
func wantsHTML(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}
