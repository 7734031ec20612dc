package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/postrider/postrider/internal/credentials"
	"github.com/postrider/postrider/router/connect"
)

// glueRegistry is a registry of AWS Glue. Its source is the API reference of AWS Glue, and
// awslabs/aws-glue-schema-registry for the framing and for what its serializers request.
type glueRegistry struct {
	cfg  Config
	http *http.Client

	requests requests

	mu      sync.Mutex // guards what follows
	headers map[identity][]byte
	newest  map[string]*latest
	names   map[uuid.UUID]string // of the schemas of framed values
}

const (
	glueVersion = 3 // the first byte of Glue's framing
	// The second byte: the value is as it is, or compressed with zlib.
	gluePlain, glueZlib = 0, 5
	glueHeader          = 2 + len(uuid.UUID{})
	// glueInterval is the time between two looks at a version that is being checked.
	glueInterval = 200 * time.Millisecond
)

func newGlue(cfg Config) *glueRegistry {
	g := &glueRegistry{cfg: cfg, headers: map[identity][]byte{},
		newest: map[string]*latest{}, names: map[uuid.UUID]string{}}
	g.http = cfg.httpClient(&g.requests)
	return g
}

// requested implements server.
func (g *glueRegistry) requested() time.Time { return g.requests.last() }

// glueVersionAnswer is what several operations answer about a version of a schema.
type glueVersionAnswer struct {
	ID         string `json:"SchemaVersionId"`
	Definition string `json:"SchemaDefinition"`
	Format     string `json:"DataFormat"`
	ARN        string `json:"SchemaArn"`
	Number     int    `json:"VersionNumber"`
	Status     string `json:"Status"`
}

// glueError is an answer with an error.
type glueError struct {
	Type    string `json:"__type"`
	Message string `json:"Message"`
	status  int
}

func (e *glueError) Error() string { return e.Type + ": " + e.Message }

// is reports whether an error is an answer of a type.
func (*glueRegistry) is(err error, kind string) bool {
	var answer *glueError
	return errors.As(err, &answer) && answer.Type == kind
}

type object = map[string]any

// call requests an operation, and decodes the answer.
func (g *glueRegistry) call(ctx context.Context, operation string, request object,
	answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	endpoint := ""
	if len(g.cfg.URLs) > 0 {
		endpoint = g.cfg.URLs[0]
	}
	r, err := g.cfg.AWS.Send(ctx, section+".aws", g.http, credentials.Call{Service: "glue",
		Endpoint: endpoint, Operation: "AWSGlue." + operation, Body: body})
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body) // transport bounds it
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		failed := &glueError{status: r.StatusCode}
		if json.Unmarshal(text, failed) != nil || failed.Type == "" {
			return fmt.Errorf("it answers %s without an error of AWS Glue", r.Status)
		}
		failed.Type = failed.Type[strings.LastIndexByte(failed.Type, '#')+1:]
		return failed
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return errors.New("it answers something else than AWS Glue")
	}
	return nil
}

func (g *glueRegistry) schemaID(name string) object {
	return object{"RegistryName": g.cfg.RegistryName, "SchemaName": name}
}

// glueFormats are Glue's names for the types of schemas.
var glueFormats = map[sr.SchemaType]string{sr.TypeAvro: "AVRO", sr.TypeJSON: "JSON"}

// header implements server.
func (g *glueRegistry) header(name string, s sr.Schema, u Usage) ([]byte, error) {
	key := identityOf(name, s)
	g.mu.Lock()
	known, found := g.headers[key]
	g.mu.Unlock()
	if found {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Timeout)
	defer cancel()
	id, err := g.version(ctx, name, s, u)
	switch {
	case err != nil:
		return nil, g.failure(name, u, err)
	case id == "": // of a preview
		return make([]byte, glueHeader), nil
	}
	has, err := g.available(ctx, id)
	if err != nil {
		return nil, g.failure(name, u, err)
	}
	if !sameSchema(s, sr.Schema{Schema: has.Definition, Type: s.Type}, nil) {
		return nil, errOtherSchema(id, name, has.Definition, s.Schema)
	}
	header, err := glueFrame(has.ID)
	if err != nil {
		return nil, g.failure(name, u, err)
	}
	g.mu.Lock()
	keep(g.headers, key, header)
	g.mu.Unlock()
	return header, nil
}

func glueFrame(id string) ([]byte, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return nil, fmt.Errorf("it answers an id that is no UUID: %w", err)
	}
	return append([]byte{glueVersion, gluePlain}, parsed[:]...), nil
}

// version is the id of the version of a schema, which is registered if it is not there.
func (g *glueRegistry) version(ctx context.Context, name string, s sr.Schema, u Usage) (string,
	error) {
	var answer glueVersionAnswer
	request := object{"SchemaId": g.schemaID(name), "SchemaDefinition": s.Schema}
	err := g.call(ctx, "GetSchemaByDefinition", request, &answer)
	if !g.is(err, notThere) || !u.Register {
		return answer.ID, err
	}
	if u.Preview {
		return "", nil
	}
	if err = g.call(ctx, "RegisterSchemaVersion", request, &answer); !g.is(err, notThere) {
		return answer.ID, err
	}
	err = g.call(ctx, "CreateSchema", object{"RegistryId": object{"RegistryName": g.cfg.RegistryName},
		"SchemaName": name, "DataFormat": glueFormats[s.Type], "SchemaDefinition": s.Schema,
		"Compatibility": "BACKWARD"}, &answer)
	return answer.ID, err
}

const (
	notThere  = "EntityNotFoundException"
	available = "AVAILABLE" // a version that was checked
)

// available waits until a version that was registered has been checked.
func (g *glueRegistry) available(ctx context.Context, id string) (has glueVersionAnswer,
	err error) {
	for {
		pending := has.Status != ""
		err = g.call(ctx, "GetSchemaVersion", object{"SchemaVersionId": id}, &has)
		if pending && ctx.Err() != nil {
			return has, errors.New("the version is still being checked")
		}
		if err != nil || has.Status == available {
			return has, err
		}
		if has.Status != "PENDING" {
			return has, &glueError{Type: "Status " + has.Status, Message: "the version does not fit the " +
				"compatibility mode of the schema", status: http.StatusConflict}
		}
		select {
		case <-ctx.Done():
		case <-time.After(glueInterval):
		}
	}
}

// latest implements server.
func (g *glueRegistry) latest(name string) (*latest, error) {
	g.mu.Lock()
	known := g.newest[name]
	g.mu.Unlock()
	if known != nil {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Timeout)
	defer cancel()
	var has glueVersionAnswer
	err := g.call(ctx, "GetSchemaVersion", object{"SchemaId": g.schemaID(name),
		"SchemaVersionNumber": object{"LatestVersion": true}}, &has)
	if err != nil {
		return nil, g.failure(name, Usage{}, err)
	}
	out := &latest{schema: sr.Schema{Schema: has.Definition, Type: sr.TypeProtobuf},
		number: has.Number}
	for kind, format := range glueFormats {
		if format == has.Format {
			out.schema.Type = kind
		}
	}
	if out.header, err = glueFrame(has.ID); err != nil {
		return nil, g.failure(name, Usage{}, err)
	}
	g.mu.Lock()
	keep(g.newest, name, out)
	g.mu.Unlock()
	return out, nil
}

// References implements server: Glue has none.
func (*glueRegistry) References([]sr.SchemaReference) (map[string]string, error) {
	return nil, nil
}

// checkFramed implements server.
func (g *glueRegistry) checkFramed(b []byte, name string) error {
	if len(b) < glueHeader || b[0] != glueVersion || b[1] != gluePlain && b[1] != glueZlib {
		return errNotFramed()
	}
	id := uuid.UUID(b[2:glueHeader])
	g.mu.Lock()
	known, found := g.names[id]
	g.mu.Unlock()
	if !found {
		ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Timeout)
		defer cancel()
		var has glueVersionAnswer
		err := g.call(ctx, "GetSchemaVersion", object{"SchemaVersionId": id.String()}, &has)
		if err != nil && !g.is(err, notThere) {
			return g.failure(name, Usage{}, err)
		}
		// arn:aws:glue:REGION:ACCOUNT:schema/REGISTRY/NAME
		_, of, _ := strings.Cut(has.ARN, ":schema/"+g.cfg.RegistryName+"/")
		if has.Status == available {
			known = of
		}
		g.mu.Lock()
		if known != "" {
			keep(g.names, id, known)
		}
		g.mu.Unlock()
	}
	if known == "" || name != "" && known != name {
		return errOtherSubject(id.String(), name)
	}
	return nil
}

// ping implements server.
func (g *glueRegistry) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Timeout)
	defer cancel()
	request := object{"RegistryId": object{"RegistryName": g.cfg.RegistryName}}
	if err := g.call(ctx, "GetRegistry", request, &object{}); err != nil {
		return g.failure("", Usage{}, err)
	}
	return nil
}

// failure classifies an error of a request, as Client.failure does.
func (g *glueRegistry) failure(name string, u Usage, err error) error {
	away := g.cfg.away()
	var answer *glueError
	if !errors.As(err, &answer) {
		return unanswered(away, err)
	}
	text := oneLine(excerpt(answer.Error()))
	switch kind := answer.Type; {
	case kind == "AccessDeniedException", kind == "UnrecognizedClientException",
		kind == "InvalidSignatureException", kind == "IncompleteSignature",
		kind == "MissingAuthenticationToken", strings.HasPrefix(kind, "ExpiredToken"):
		return &advised{connect.ErrRegistryLogin, text, "allow the identity of the relay glue:" +
			"GetSchemaByDefinition, GetSchemaVersion, RegisterSchemaVersion, CreateSchema and GetRegistry"}
	case kind == notThere && (name == "" || u.Register): // a schema would have been created
		return &advised{connect.ErrRegistryHalt, text, "set registry.registry_name, or create the " +
			"registry in AWS Glue"}
	case kind == notThere:
		return connect.Unwritable("register the schema under name "+name+", or let the relay do so "+
			"([format]: auto.register.schemas = true, use.latest.version = false)",
			"the registry does not have its schema under name %s: %s", name, text)
	case kind == "InvalidInputException", answer.status == http.StatusConflict:
		return connect.Unwritable("have the application write what consumers of the versions so far "+
			"can read, or change the compatibility mode of schema "+name,
			"the registry refuses its schema for name %s: %s", name, text)
	}
	return &advised{away, text, "check registry.urls and registry.aws, and the quotas of AWS Glue"}
}
