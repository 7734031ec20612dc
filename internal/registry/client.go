package registry

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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

	requests requests

	mu     sync.Mutex // guards what follows
	ids    map[identity]int
	newest map[string]*latest // by subject, as they were when they were first needed
	// versions of subjects, which are not changed
	versions map[version]sr.SubjectSchema
	// subjects of ids that come with framed values, by id
	subjects map[int]map[string]bool
	// when a wait for the id of a framed value ended in vain; zero: none did
	vain time.Time
}

// followerLag is for how long a server of the registry may be behind the one that has registered a
// schema: it reads that from a topic.
const (
	followerLag   = 2 * time.Second
	followerPause = 100 * time.Millisecond
	// vainPause is how long no other id is waited for after one was in vain: a batch may have many
	// rows whose ids are none.
	vainPause = time.Minute
)

// identity is what has an id: a schema as it is registered under a subject.
type identity struct {
	subject string
	text    [sha256.Size]byte // a digest of it and of its references
	kind    sr.SchemaType
}

func identityOf(subject string, s sr.Schema) identity {
	text := fmt.Sprintf("%v %s", s.References, s.Schema)
	return identity{subject, sha256.Sum256([]byte(text)), s.Type}
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
		sr.HTTPClient(cfg.httpClient(&c.requests)))
	return c, err
}

// requested implements server.
func (c *Client) requested() time.Time { return c.requests.last() }

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
		ctx, cancel := context.WithTimeout(r.Context(), c.cfg.Timeout)
		defer cancel()
		token, err := c.tokens.Token(ctx)
		if token.Value == "" {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+token.Value)
	}
	return nil
}

// context bounds a call with requests, each of which has registry.timeout at each URL, as has the
// request for a token before them.
func (c *Client) context(requests int) (context.Context, context.CancelFunc) {
	most := requests * len(c.cfg.URLs)
	if c.tokens != nil {
		most++
	}
	return context.WithTimeout(context.Background(), c.cfg.Timeout*time.Duration(most))
}

// ID is the id of a schema under a subject. It blocks for twice the timeout of each URL at most,
// and once for a token, and not at all for a schema whose id is known. Errors are
// connect.ErrRegistry or its siblings, or *connect.ValueError for a schema that the registry
// refuses.
func (c *Client) ID(subject string, s sr.Schema, u Usage) (int, error) {
	key := identityOf(subject, s)
	c.mu.Lock()
	id, known := c.ids[key]
	c.mu.Unlock()
	if known {
		return id, nil
	}
	ctx, cancel := c.context(2) //nolint:mnd // and verify's
	defer cancel()
	id, new, err := c.request(ctx, subject, s, u)
	switch {
	case err != nil:
		return 0, withSize(c.failure(subject, u, err), err, subject, s)
	case new:
		return 0, nil
	case !c.possible(id):
		return 0, c.failure(subject, u, fmt.Errorf("it answers the id %d, which no schema has", id))
	}
	if err := c.verify(ctx, subject, s, id); err != nil {
		return 0, err
	}
	c.mu.Lock()
	keep(c.ids, key, id)
	c.mu.Unlock()
	return id, nil
}

// request registers a schema, or finds it. In a preview, new is one that would be registered.
func (c *Client) request(ctx context.Context, subject string, s sr.Schema, u Usage) (id int,
	new bool, err error) {
	var params []sr.Param
	if u.Normalize {
		params = append(params, sr.Normalize)
	}
	asked := sr.WithParams(ctx, params...)
	if u.Register && !u.Preview {
		id, err = c.api.RegisterSchema(asked, subject, s, -1, -1)
		return id, false, err
	}
	found, err := c.api.LookupSchema(asked, subject, s)
	if u.Register && notFound(err) {
		return 0, true, c.compatible(sr.WithParams(ctx, append(params, sr.Verbose)...), subject, s)
	}
	return found.ID, false, err
}

// possible reports whether the framing has room for an id.
func (c *Client) possible(id int) bool {
	return id > 0 && (id <= math.MaxInt32 || c.cfg.Framing == Apicurio)
}

// compatible returns an error like that of the registration of a schema that does not fit.
func (c *Client) compatible(ctx context.Context, subject string, s sr.Schema) error {
	const all, latest = -2, -1 // of all versions, the registry knows which ones count
	result, err := c.api.CheckCompatibility(ctx, subject, all, s)
	var answer *sr.ResponseError
	if errors.As(err, &answer) && !notFound(err) && (answer.StatusCode == http.StatusNotFound ||
		answer.StatusCode == http.StatusMethodNotAllowed) { // Redpanda and Karapace have only this one
		result, err = c.api.CheckCompatibility(ctx, subject, latest, s)
	}
	switch {
	case notFound(err): // it would be the first version
		return nil
	case err == nil && !result.Is:
		return &sr.ResponseError{StatusCode: http.StatusConflict, ErrorCode: http.StatusConflict,
			Message: "the schema is not compatible: " +
				strings.Join(result.Messages, "; ")}
	}
	return err
}

// verify compares the schema that the registry has under an id with ours: consumers read by it.
func (c *Client) verify(ctx context.Context, subject string, s sr.Schema, id int) error {
	has, err := c.api.SchemaByID(ctx, id)
	if notFound(err) { // another server of the registry is behind
		err = fmt.Errorf("it has no schema with id %d, which it answered just before", id)
	}
	if err == nil && has.Schema == "" {
		err = errors.New("it answers something else than a schema")
	}
	if err != nil {
		return c.failure(subject, Usage{}, err)
	}
	if executed(has.SchemaRuleSet) {
		return errRules(subject)
	}
	texts, err := c.References(s.References)
	if err != nil {
		return err
	}
	if !sameSchema(s, has, texts) {
		return errOtherSchema(strconv.Itoa(id), subject, has.Schema, s.Schema)
	}
	return nil
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
	ctx, cancel := c.context(1)
	defer cancel()
	const newest = -1
	has, err := c.fetch(ctx, subject, newest)
	if err != nil {
		return nil, err
	}
	if executed(has.SchemaRuleSet) {
		return nil, errRules(subject)
	}
	known = &latest{has.Schema, appendHeader(nil, c.cfg.Framing, has.ID), has.Version}
	c.mu.Lock()
	keep(c.newest, subject, known)
	c.mu.Unlock()
	return known, nil
}

// executed reports whether serializers execute rules on values, such as encryption.
func executed(rules *sr.SchemaRuleSet) bool {
	return rules != nil && slices.ContainsFunc(rules.DomainRules,
		func(r sr.SchemaRule) bool { return !r.Disabled && r.Mode != sr.SchemaRuleModeRead })
}

// fetch is a version of a subject from the registry.
func (c *Client) fetch(ctx context.Context, subject string, number int) (sr.SubjectSchema, error) {
	has, err := c.api.SchemaByVersion(ctx, subject, number)
	if err == nil && (!c.possible(has.ID) || has.Version < 1 || has.Schema.Schema == "") {
		err = errors.New("it answers something else than a version of a subject")
	}
	if err != nil {
		return has, c.failure(subject, Usage{}, err)
	}
	return has, nil
}

// version is a version of a subject. It fails as ID.
func (c *Client) version(ctx context.Context, subject string, number int) (sr.SubjectSchema,
	error) {
	key := version{subject, number}
	c.mu.Lock()
	known, found := c.versions[key]
	c.mu.Unlock()
	if found {
		return known, nil
	}
	has, err := c.fetch(ctx, subject, number)
	if err != nil {
		return has, err
	}
	c.mu.Lock()
	keep(c.versions, key, has)
	c.mu.Unlock()
	return has, nil
}

// maxReferences bounds how many schemas one may refer to, with those that these refer to.
const maxReferences = 1000

// References are the texts of schemas that a schema refers to, and of those that these refer to,
// by their names. It blocks for the timeout of each URL, for each of the first ten, and fails as
// ID.
func (c *Client) References(of []sr.SchemaReference) (map[string]string, error) {
	const requests = 10
	ctx, cancel := c.context(requests)
	defer cancel()
	texts, pending := map[string]string{}, slices.Clone(of)
	for ; len(pending) > 0; pending = pending[1:] {
		r := pending[0]
		if _, known := texts[r.Name]; known {
			continue
		}
		if len(texts) == maxReferences {
			return nil, &advised{connect.ErrRegistryHalt, fmt.Sprintf("the schema refers to more than %d "+
				"others", maxReferences), "give it fewer references"}
		}
		has, err := c.version(ctx, r.Subject, r.Version)
		if err != nil {
			return nil, asConfiguration(err)
		}
		texts[r.Name] = has.Schema.Schema
		pending = append(pending, has.References...)
	}
	return texts, nil
}

// Belongs reports whether an id is one of a subject, or of any one where that is empty, and asks
// the registry once for each.
func (c *Client) Belongs(id int, subject string) (bool, error) {
	c.mu.Lock()
	known, found := c.subjects[id]
	c.mu.Unlock()
	if found && (subject == "" || known[subject]) {
		return true, nil
	}
	// A schema may have been registered under a further subject meanwhile.
	ctx, cancel := c.context(1)
	defer cancel()
	versions, err := c.api.SchemaVersionsByID(ctx, id) // Karapace has no request for subjects
	switch {
	case notFound(err):
		return false, nil
	case err == nil && versions == nil:
		err = errors.New("it answers something else than versions")
		fallthrough
	case err != nil:
		return false, c.failure(subject, Usage{}, err)
	}
	of := map[string]bool{}
	for _, v := range versions {
		of[v.Subject] = true
	}
	if len(of) > 0 {
		c.mu.Lock()
		keep(c.subjects, id, of)
		c.mu.Unlock()
	}
	return of[subject] || subject == "" && len(of) > 0, nil
}

// checkFramed implements server. An id that is not known blocks it for followerLag: the
// application may have registered the schema just before, with another server of the registry.
func (c *Client) checkFramed(b []byte, subject string) error {
	id, found := readHeader(b, c.cfg.Framing)
	if !found {
		return errNotFramed()
	}
	if !c.possible(id) {
		return errOtherSubject(strconv.Itoa(id), subject)
	}
	for began := time.Now(); ; time.Sleep(followerPause) {
		ours, err := c.Belongs(id, subject)
		switch {
		case err != nil || ours:
			return err
		case !c.waits(began):
			return errOtherSubject(strconv.Itoa(id), subject)
		}
	}
}

// waits reports whether an id is waited for that has not been known since a time.
func (c *Client) waits(since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.vain.IsZero() && time.Since(c.vain) < vainPause {
		return false
	}
	if time.Since(since) > followerLag {
		c.vain = time.Now()
		return false
	}
	return true
}

// ping implements server: it requests the registry's configuration.
func (c *Client) ping(ctx context.Context) error {
	if err := c.api.Compatibility(ctx)[0].Err; err != nil {
		return c.failure("", Usage{}, err)
	}
	return nil
}
