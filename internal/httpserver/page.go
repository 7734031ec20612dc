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

// The page is written in files of its own and served as one document: nothing is fetched but the stream of its data.
//
//go:embed page
var sources embed.FS

// scripts in the order in which they become the one script of the page.
var scripts = []string{"format.js", "dom.js", "chart.js", "table.js", "verdict.js", "pipeline.js", "slot.js", "history.js", "lists.js", "stream.js"}

// page is the document, and the policy under which a browser may run it.
type page struct {
	plain, packed []byte
	policy        string
}

// newPage puts the document together. withRunbooks tells it that /runbook/ answers.
func newPage(withRunbooks bool) page {
	var script strings.Builder
	for _, name := range scripts {
		script.WriteString(source(name))
	}
	links := ""
	if withRunbooks {
		links = "runbook/"
	}
	document := strings.NewReplacer(
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

// source is a file of the page. All are embedded: one that is missing is a mistake of ours that no start survives.
func source(name string) string {
	b, err := sources.ReadFile("page/" + name)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// inline finds what a browser runs or applies, as it hashes it: everything between the tags.
var inline = regexp.MustCompile(`(?s)<(script|style)[^>]*>(.*?)</(?:script|style)>`)

// policy lets a browser run this document's own script and nothing else, talk to this server and nobody else, and turn no text into
// markup: names of topics and tables come from rows, which anybody may have written.
func policy(document string) string {
	allowed := map[string]string{}
	for _, found := range inline.FindAllStringSubmatch(document, -1) {
		sum := sha256.Sum256([]byte(found[2]))
		allowed[found[1]] += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; script-src" + allowed["script"] + "; style-src" + allowed["style"] +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" +
		"; require-trusted-types-for 'script'; trusted-types 'none'"
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

// wantsHTML tells browsers, which ask for it by name, from curl and scripts, which get text.
func wantsHTML(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }
