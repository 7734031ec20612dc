package registry

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/postrider/postrider/internal/credentials"
	"github.com/postrider/postrider/router/connect"
)

// Client has the ids of schemas, from the registry or from before. It may be used from any
// goroutine, and needs no end.
type Client struct {
	cfg    Config
	api    *sr.Client
	tokens *credentials.Source // nil: none

	mu     sync.Mutex // guards what follows
	ids    map[identity]int
	newest map[string]*latest // by subject, as they were when they were first needed
	// versions of subjects, which are not changed
	versions map[version]sr.SubjectSchema
	// subjects of ids that come with framed values, by id
	subjects map[int]map[string]bool
}

// identity is what has an id: a schema as it is registered under a subject.
type identity struct {
	subject string
	text    [sha256.Size]byte // a digest of it
	kind    sr.SchemaType
}

func identityOf(subject string, s sr.Schema) identity {
	return identity{subject, sha256.Sum256([]byte(s.Schema)), s.Type}
}

// maxKnown bounds each kind of answer that is kept: names of subjects, and schemas, come from
// rows.
const maxKnown = 100_000

// keep puts an answer of a registry into a map, which is emptied when it is full.
func keep[K comparable, V any](known map[K]V, key K, v V) {
	if len(known) == maxKnown {
		clear(known)
	}
	known[key] = v
}

type version struct {
	subject string
	number  int
}

// Usage is how schemas are looked for.
type Usage struct {
	Register  bool // what is not there
	Normalize bool // compare by meaning
	// Preview changes nothing in the registry. A schema that would be registered has the id zero.
	Preview bool
}

// New makes a client of a valid configuration, which connects when it is used.
func New(cfg Config) (*Client, error) {
	c := &Client{cfg: cfg, ids: map[identity]int{}, newest: map[string]*latest{},
		versions: map[version]sr.SubjectSchema{}, subjects: map[int]map[string]bool{}}
	if cfg.OAuth.IsSet() {
		c.tokens = credentials.NewSource(func(ctx context.Context) (credentials.Token, error) {
			return cfg.OAuth.Fetch(ctx, section+".oauth")
		})
	}
	var err error
	c.api, err = sr.NewClient(sr.URLs(cfg.URLs...), sr.UserAgent("postrider"), sr.PreReq(c.prepare),
		sr.HTTPClient(cfg.httpClient()))
	return c, err
}

// prepare adds the login to a request.
func (c *Client) prepare(r *http.Request) error {
	for _, h := range c.cfg.Headers {
		name, value, _ := strings.Cut(h, "=")
		r.Header.Set(name, value)
	}
	switch {
	case c.cfg.Username != "":
		password, err := c.cfg.Password.Reveal()
		if err != nil {
			return fmt.Errorf("registry.password: %w", err)
		}
		r.SetBasicAuth(c.cfg.Username, password)
	case c.tokens != nil:
		token, err := c.tokens.Token(r.Context())
		if token.Value == "" {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+token.Value)
	}
	return nil
}

// context bounds a request, and all tries of it.
func (c *Client) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), c.cfg.Timeout)
}

// ID is the id of a schema under a subject. It blocks for the timeout at most, and not at all for
// a schema whose id is known. Errors are connect.ErrRegistry or its siblings, or
// *connect.ValueError for a schema that the registry refuses.
func (c *Client) ID(subject string, s sr.Schema, u Usage) (int, error) {
	key := identityOf(subject, s)
	c.mu.Lock()
	id, known := c.ids[key]
	c.mu.Unlock()
	if known {
		return id, nil
	}
	ctx, cancel := c.context()
	defer cancel()
	if u.Normalize {
		ctx = sr.WithParams(ctx, sr.Normalize)
	}
	id, err := c.request(ctx, subject, s, u)
	if err != nil {
		return 0, c.failure(subject, u, err)
	}
	if id != 0 {
		if err := c.verify(ctx, subject, s, id); err != nil {
			return 0, err
		}
	}
	c.mu.Lock()
	keep(c.ids, key, id)
	c.mu.Unlock()
	return id, nil
}

func (c *Client) request(ctx context.Context, subject string, s sr.Schema, u Usage) (int, error) {
	if u.Register && !u.Preview {
		return c.api.RegisterSchema(ctx, subject, s, -1, -1)
	}
	found, err := c.api.LookupSchema(ctx, subject, s)
	if u.Register && notFound(err) {
		return 0, c.compatible(ctx, subject, s)
	}
	return found.ID, err
}

// notFound reports whether the registry answers that it has no such subject, version or schema.
func notFound(err error) bool {
	var answer *sr.ResponseError
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound &&
		answer.ErrorCode != 0
}

// compatible returns an error like that of the registration of a schema that does not fit.
func (c *Client) compatible(ctx context.Context, subject string, s sr.Schema) error {
	const latest = -1
	result, err := c.api.CheckCompatibility(sr.WithParams(ctx, sr.Verbose), subject, latest, s)
	switch {
	case notFound(err): // it would be the first version
		return nil
	case err == nil && !result.Is:
		return &sr.ResponseError{StatusCode: http.StatusConflict, ErrorCode: http.StatusConflict,
			Message: "the schema is not compatible with the latest version: " +
				strings.Join(result.Messages, "; ")}
	}
	return err
}

// verify compares the schema that the registry has under an id with ours: consumers read by it.
func (c *Client) verify(ctx context.Context, subject string, s sr.Schema, id int) error {
	has, err := c.api.SchemaByID(ctx, id)
	if err != nil {
		return c.failure(subject, Usage{}, err)
	}
	texts, err := c.References(s.References)
	if err != nil {
		return err
	}
	if !sameSchema(s, has, texts) {
		return fmt.Errorf("%w: it answers another schema under id %d of subject %s: %s, where the row "+
			"has %s; restart the relay when the registry is as it was, or delete the wrong subject",
			connect.ErrRegistryHalt, id, subject, excerpt(has.Schema), excerpt(s.Schema))
	}
	return nil
}

func excerpt(text string) string {
	const most = 300
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// header implements server.
func (c *Client) header(subject string, s sr.Schema, u Usage) ([]byte, error) {
	id, err := c.ID(subject, s, u)
	return appendHeader(nil, c.cfg.Framing, id), err
}

// latest implements server.
func (c *Client) latest(subject string) (*latest, error) {
	c.mu.Lock()
	known := c.newest[subject]
	c.mu.Unlock()
	if known != nil {
		return known, nil
	}
	ctx, cancel := c.context()
	defer cancel()
	const newest = -1
	has, err := c.api.SchemaByVersion(ctx, subject, newest)
	if err != nil {
		return nil, c.failure(subject, Usage{}, err)
	}
	known = &latest{has.Schema, appendHeader(nil, c.cfg.Framing, has.ID), has.Version}
	c.mu.Lock()
	keep(c.newest, subject, known)
	c.mu.Unlock()
	return known, nil
}

// version is a version of a subject. It blocks and fails as ID.
func (c *Client) version(subject string, number int) (sr.SubjectSchema, error) {
	key := version{subject, number}
	c.mu.Lock()
	known, found := c.versions[key]
	c.mu.Unlock()
	if found {
		return known, nil
	}
	ctx, cancel := c.context()
	defer cancel()
	has, err := c.api.SchemaByVersion(ctx, subject, number)
	if err != nil {
		return has, c.failure(subject, Usage{}, err)
	}
	c.mu.Lock()
	keep(c.versions, key, has)
	c.mu.Unlock()
	return has, nil
}

// References are the texts of schemas that a schema refers to, and of those that these refer to,
// by their names. It blocks and fails as ID.
func (c *Client) References(of []sr.SchemaReference) (map[string]string, error) {
	texts, pending := map[string]string{}, slices.Clone(of)
	for ; len(pending) > 0; pending = pending[1:] {
		r := pending[0]
		if _, known := texts[r.Name]; known {
			continue
		}
		has, err := c.version(r.Subject, r.Version)
		if err != nil {
			return nil, err
		}
		texts[r.Name] = has.Schema.Schema
		pending = append(pending, has.References...)
	}
	return texts, nil
}

// Belongs reports whether an id is one of a subject, and asks the registry once for each.
func (c *Client) Belongs(id int, subject string) (bool, error) {
	c.mu.Lock()
	known, found := c.subjects[id]
	c.mu.Unlock()
	if found && known[subject] {
		return true, nil
	}
	// A schema may have been registered under a further subject meanwhile.
	ctx, cancel := c.context()
	defer cancel()
	names, err := c.api.SubjectsByID(ctx, id)
	switch {
	case notFound(err):
		return false, nil
	case err != nil:
		return false, c.failure(subject, Usage{}, err)
	}
	of := map[string]bool{}
	for _, name := range names {
		of[name] = true
	}
	c.mu.Lock()
	keep(c.subjects, id, of)
	c.mu.Unlock()
	return of[subject], nil
}

// checkFramed implements server.
func (c *Client) checkFramed(b []byte, subject string) error {
	id, found := readHeader(b, c.cfg.Framing)
	if !found {
		return errNotFramed()
	}
	if subject == "" {
		return nil
	}
	ours, err := c.Belongs(id, subject)
	if err == nil && !ours {
		return errOtherSubject(strconv.Itoa(id), subject)
	}
	return err
}

// ping implements server: it requests the registry's configuration.
func (c *Client) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if err := c.api.Compatibility(ctx)[0].Err; err != nil {
		return c.failure("", Usage{}, err)
	}
	return nil
}

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

// readOnly is the code of a registry that takes no new schemas for now.
const readOnly = 42205

// failure classifies an error of a request. An answer with a code of the registry's own about the
// schema concerns the row; anything else concerns the registry, or what stands before it.
func (c *Client) failure(subject string, u Usage, err error) error {
	away := c.cfg.away()
	var answer *sr.ResponseError
	var login *credentials.Error
	switch {
	case errors.As(err, &login):
		class := away
		if errors.Is(err, credentials.ErrRefused) {
			class = connect.ErrRegistryLogin
		}
		return &advised{class, login.Text, login.Hint}
	case !errors.As(err, &answer):
		return &advised{away, oneLine(innermost(err).Error()), "check registry.urls, and that the " +
			"registry is up"}
	}
	text := fmt.Sprintf("%s (%d)", oneLine(excerpt(answer.Error())), answer.StatusCode)
	switch status := answer.StatusCode; {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return &advised{connect.ErrRegistryLogin, text, "check registry.username and password, or " +
			"registry.oauth, and that it may read and write subject " + subject}
	case answer.ErrorCode == 0, answer.ErrorCode == readOnly,
		status >= http.StatusInternalServerError, status == http.StatusTooManyRequests:
		return &advised{away, text, "check registry.urls, and the registry's own log"}
	case status == http.StatusNotFound && !u.Register:
		return connect.Unwritable("register the schema under subject "+subject+", or let the relay do "+
			"so ([format]: auto.register.schemas = true, use.latest.version = false)",
			"the registry does not have its schema under "+
				"subject %s: %s", subject, text)
	case status == http.StatusConflict:
		return connect.Unwritable("have the application write what consumers of the versions so far "+
			"can read, or change the compatibility of subject "+subject, "its schema does not fit the "+
			"versions of subject %s: %s", subject, text)
	}
	return connect.Unwritable("", "the registry refuses its schema for subject %s: %s", subject, text)
}

func innermost(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return innermost(inner)
	}
	return err
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
