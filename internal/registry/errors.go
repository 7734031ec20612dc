package registry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/postrider/postrider/internal/credentials"
	"github.com/postrider/postrider/internal/tlsfiles"
	"github.com/postrider/postrider/router/connect"
)

// advised is an error with what to do about it.
type advised struct {
	class error
	text  string
	fix   string
}

func (e *advised) Error() string { return e.class.Error() + ": " + e.text + "; " + e.fix }

func (e *advised) Unwrap() error { return e.class }

// Advice is what the user needs besides the text. The consequence for the WAL is not known here.
func (e *advised) Advice() (wal, fix string) { return "", e.fix }

// Codes of Confluent's API. Those of what is not found begin with the status, and two digits
// follow.
const (
	codesNotFound = 404
	invalidLevel  = 42203 // of the subject's compatibility
	readOnly      = 42205 // the registry takes no new schemas for now
)

// notFound reports whether the registry answers that it has no such subject, version or schema.
func notFound(err error) bool {
	var answer *sr.ResponseError
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound &&
		answer.ErrorCode/100 == codesNotFound
}

// errRules is the error of a schema with rules that a serializer would execute.
func errRules(subject string) error {
	return &advised{connect.ErrRegistryHalt, "the schema of subject " + subject + " has rules for " +
		"its values, such as encryption, which postrider does not execute", "have the application " +
		"write values with Confluent's serializer, and set format \"framed\""}
}

// asConfiguration makes an error of the schema one that no policy for rows passes over: the
// configuration is at fault, and every row has it.
func asConfiguration(err error) error {
	var row *connect.ValueError
	if !errors.As(err, &row) {
		return err
	}
	return &advised{connect.ErrRegistryHalt, row.Error(), row.Hint}
}

// errOtherSchema is the error of a registry that has changed its mind.
func errOtherSchema(id, subject, has, ours string) error {
	return &advised{connect.ErrRegistryHalt, fmt.Sprintf("it answers another schema under id %s of "+
		"subject %s: %s, where the row has %s", id, subject, excerpt(has), excerpt(ours)),
		"restart the relay when the registry is as it was, or delete the wrong subject"}
}

// failure classifies an error of a request. An answer with a code of the registry's own about the
// schema concerns the row; anything else concerns the registry, or what stands before it.
func (c *Client) failure(subject string, u Usage, err error) error {
	away := c.cfg.away()
	var answer *sr.ResponseError
	if !errors.As(err, &answer) {
		return unanswered(away, err)
	}
	text := fmt.Sprintf("%s (%d)", oneLine(excerpt(answer.Error())), answer.StatusCode)
	switch {
	case answer.StatusCode == http.StatusUnauthorized, answer.StatusCode == http.StatusForbidden:
		fix := "check registry.username and password, or registry.oauth"
		if subject != "" {
			fix += ", and that it may read and write subject " + subject
		}
		return &advised{connect.ErrRegistryLogin, text, fix}
	case subject == "":
	case notFound(err) && !u.Register:
		return connect.Unwritable("register the schema under subject "+subject+", or let the relay do "+
			"so ([format]: auto.register.schemas = true, use.latest.version = false)",
			"the registry does not have its schema under subject %s: %s", subject, text)
	case answer.StatusCode == http.StatusConflict:
		return connect.Unwritable("have the application write what consumers of the versions so far "+
			"can read, or change the compatibility of subject "+subject, "its schema does not fit the "+
			"versions of subject %s: %s", subject, text)
	case answer.StatusCode == http.StatusUnprocessableEntity && answer.ErrorCode != 0 &&
		answer.ErrorCode != readOnly && answer.ErrorCode != invalidLevel:
		return connect.Unwritable("have the application write something that the registry takes",
			"the registry refuses its schema for subject %s: %s", subject, text)
	}
	return &advised{away, text, "check registry.urls with its path, and the registry's own log"}
}

// largeSchema is what a topic takes in one record by default, and so a registry that keeps its
// schemas there.
const largeSchema = 1 << 20

// withSize is what failure has made of a request with a schema that may be too large: a proxy that
// does not let it pass answers 413, and a registry that cannot keep it 500.
func withSize(err, request error, subject string, s sr.Schema) error {
	var down *unavailable
	var away *advised
	switch {
	case !errors.As(request, &down):
	case down.status == http.StatusRequestEntityTooLarge:
		return connect.Unwritable("have the registry, and a proxy before it, take schemas of this "+
			"size, or have the application write what needs a smaller one",
			"its schema of %d bytes is too large for the registry, or for a proxy before it, under "+
				"subject %s: %s", len(s.Schema), subject, down)
	case down.status == http.StatusInternalServerError && errors.As(err, &away) &&
		len(s.Schema) > largeSchema:
		away.fix += fmt.Sprintf("; its schema has %d bytes, which may be more than the registry takes",
			len(s.Schema))
	}
	return err
}

// unanswered is the error of a request without an answer of the registry.
func unanswered(away, err error) error {
	var login *credentials.Error
	var file *fs.PathError
	var untrusted *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	text := oneLine(excerpt(reason(err)))
	switch {
	case errors.As(err, &login):
		if errors.Is(err, credentials.ErrRefused) {
			away = connect.ErrRegistryLogin
		}
		return &advised{away, login.Text, login.Hint}
	case errors.As(err, &file):
		return &advised{away, oneLine(file.Error()), "check that the file is there, and that the " +
			"relay may read it"}
	case tlsfiles.Expired(err):
		return &advised{away, text, "give the registry a new certificate; if it has not expired, set " +
			"the clock of the relay's machine"}
	case errors.As(err, &untrusted), errors.As(err, &authority):
		return &advised{away, text, "set registry.tls.ca_file to the authority that signed the " +
			"registry's certificate, or registry.tls.server_name to a name in it"}
	}
	return &advised{away, text, "check registry.urls, and that the registry is up"}
}

// reason leaves out what names the request alone.
func reason(err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err.Error()
	}
	return innermost(err).Error()
}

func innermost(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return innermost(inner)
	}
	return err
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// excerpt cuts what comes from a registry, or from what stands before it.
func excerpt(text string) string {
	const most = 300
	cut := ""
	if len(text) > most {
		text, cut = text[:most], "…"
	}
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) && !unicode.IsSpace(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(text, "")) + cut
}
