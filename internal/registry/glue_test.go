package registry

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/router/connect"
)

const glueSecret = "glue-test-secret-key"

// glueFake answers like AWS Glue, after its API reference.
type glueFake struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex // guards what follows
	versions []glueVersionAnswer
	looks    int    // until a registered version is available
	status   string // that it has then
	calls    []string
	fail     func(operation string) (status int, kind string)
}

func newGlueFake(t *testing.T) (*glueFake, Config) {
	t.Helper()
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "AKIAPOSTRIDER", "AWS_SECRET_ACCESS_KEY": glueSecret, "AWS_REGION": "eu-central-1",
		"AWS_CONFIG_FILE": filepath.Join(t.TempDir(), "none"), "AWS_SHARED_CREDENTIALS_FILE": filepath.Join(t.TempDir(), "none")} {
		t.Setenv(name, value)
	}
	f := &glueFake{t: t, status: "AVAILABLE"}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	cfg := at(f.URL)
	cfg.Framing = Glue
	require.NoError(t, cfg.Validate())
	return f, cfg
}

func (f *glueFake) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if problem := unsigned(r, body); problem != "" {
		f.t.Error(problem)
	}
	operation := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "AWSGlue.")
	var request struct {
		ID struct {
			Registry string `json:"RegistryName"`
			Name     string `json:"SchemaName"`
		} `json:"SchemaId"`
		Name, Definition, Version, Format string
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || json.Unmarshal(body, &request) != nil {
		f.t.Errorf("%s is no request", body)
	}
	for field, into := range map[string]*string{"SchemaName": &request.Name, "SchemaDefinition": &request.Definition,
		"SchemaVersionId": &request.Version, "DataFormat": &request.Format} {
		_ = json.Unmarshal(fields[field], into)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, operation)
	if f.fail != nil {
		if status, kind := f.fail(operation); status != 0 {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"__type":"com.amazonaws.glue#%s","Message":"as the test says"}`, kind)
			return
		}
	}
	named := func(v glueVersionAnswer) bool {
		return strings.HasSuffix(v.ARN, "schema/default-registry/"+request.ID.Name)
	}
	var found *glueVersionAnswer
	add := func(name string) {
		f.versions = append(f.versions, glueVersionAnswer{ID: uuid.NewString(), Definition: request.Definition, Format: request.Format,
			ARN: "arn:aws:glue:eu-central-1:123456789012:schema/default-registry/" + name, Number: len(f.versions) + 1, Status: "PENDING"})
		found = &f.versions[len(f.versions)-1]
	}
	switch operation {
	case "GetRegistry":
		_, _ = w.Write([]byte(`{}`))
		return
	case "GetSchemaByDefinition":
		for i, v := range f.versions {
			if named(v) && v.Definition == request.Definition {
				found = &f.versions[i]
			}
		}
	case "RegisterSchemaVersion":
		if slices.ContainsFunc(f.versions, named) {
			add(request.ID.Name)
		}
	case "CreateSchema":
		add(request.Name)
	case "GetSchemaVersion":
		for i, v := range f.versions {
			if v.ID == request.Version || request.Version == "" && named(v) {
				found = &f.versions[i]
			}
		}
		if found != nil && found.Status == "PENDING" {
			if f.looks--; f.looks < 0 {
				found.Status = f.status
			}
		}
	}
	if found == nil {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"__type":"EntityNotFoundException","Message":"it is not there"}`))
		return
	}
	_ = json.NewEncoder(w).Encode(found)
}

// unsigned verifies a request as AWS's documentation of Signature Version 4 says.
func unsigned(r *http.Request, body []byte) string {
	authorization := r.Header.Get("Authorization")
	part := func(name string) string {
		_, value, _ := strings.Cut(authorization, name+"=")
		value, _, _ = strings.Cut(value, ",")
		return value
	}
	at := r.Header.Get("X-Amz-Date")
	if signed, err := time.Parse("20060102T150405Z", at); err != nil || time.Since(signed).Abs() > 5*time.Minute {
		return "signed at " + at
	}
	scope := at[:8] + "/eu-central-1/glue/aws4_request"
	if part("Credential") != "AKIAPOSTRIDER/"+scope {
		return "credential " + part("Credential")
	}
	sum := func(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }
	headers := ""
	for _, name := range strings.Split(part("SignedHeaders"), ";") {
		value := r.Header.Get(name)
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		headers += name + ":" + value + "\n"
	}
	for _, name := range []string{"host", "x-amz-date", "x-amz-target"} {
		if !strings.Contains(headers, name+":") {
			return name + " is not signed"
		}
	}
	request := strings.Join([]string{"POST", "/", "", headers, part("SignedHeaders"), sum(body)}, "\n")
	key := []byte("AWS4" + glueSecret)
	for _, text := range append(strings.Split(scope, "/"), strings.Join([]string{"AWS4-HMAC-SHA256", at, scope, sum([]byte(request))}, "\n")) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		key = mac.Sum(nil)
	}
	if part("Signature") != hex.EncodeToString(key) {
		return "the signature is of something else"
	}
	return ""
}

func TestGlue_RegistersAndFramesAsItsSerializers(t *testing.T) {
	f, cfg := newGlueFake(t)
	f.looks = 2
	r, err := Open(cfg, avroFormat())
	require.NoError(t, err)
	require.NoError(t, Ping(t.Context(), cfg))
	b, err := r.Value.Append(nil, "orders", orderSchema, order(7, nil))
	require.NoError(t, err)
	require.Equal(t, []string{"GetRegistry", "GetSchemaByDefinition", "RegisterSchemaVersion", "CreateSchema", "GetSchemaVersion", "GetSchemaVersion",
		"GetSchemaVersion"}, f.calls, "it is used when it is available")
	require.Equal(t, "AVRO", f.versions[0].Format)
	require.True(t, strings.HasSuffix(f.versions[0].ARN, "/orders"), "as the topic")
	id := uuid.MustParse(f.versions[0].ID)
	require.Equal(t, slices.Concat([]byte{3, 0}, id[:], []byte{14, 0}), b)

	before := len(f.calls)
	_, err = r.Value.Append(nil, "orders", orderSchema, order(8, nil))
	require.NoError(t, err)
	require.Len(t, f.calls, before, "the id is known")
	again, err := Open(cfg, avroFormat())
	require.NoError(t, err)
	same, err := again.Value.Append(nil, "orders", orderSchema, order(7, nil))
	require.NoError(t, err)
	require.Equal(t, b, same, "another relay finds it")

	key, err := r.Key.Append(nil, "orders", connect.RequiredString, connect.Text("42"))
	require.NoError(t, err)
	require.Equal(t, "\x0442", string(key[18:]))
	require.True(t, strings.HasSuffix(f.versions[1].ARN, "/orders-key"))

	format := avroFormat()
	format.Value = "json_schema"
	r, err = Open(cfg, format)
	require.NoError(t, err)
	b, err = r.Value.Append(nil, "notes", orderSchema, order(7, nil))
	require.NoError(t, err)
	require.Equal(t, `{"id":7,"note":null}`, string(b[18:]))
	require.Equal(t, "JSON", f.versions[2].Format)

	format.Value, format.ValueLatest = "avro", true
	r, err = Open(cfg, format)
	require.NoError(t, err)
	b, err = r.Value.Append(nil, "orders", jsonColumn, connect.Text(`{"id": 9, "note": null}`))
	require.NoError(t, err)
	require.Equal(t, slices.Concat([]byte{3, 0}, id[:], []byte{18, 0}), b)
	_, err = r.Value.Append(nil, "notes", jsonColumn, connect.Text(`{}`))
	requireRow(t, err, `version 3 of subject notes is a schema of type JSON, and format.value is "avro"`)
}

func TestGlue_PassesOnWhatIsFramedAlready(t *testing.T) {
	f, cfg := newGlueFake(t)
	r, err := Open(cfg, avroFormat())
	require.NoError(t, err)
	framed, err := r.Value.Append(nil, "orders", orderSchema, order(7, nil))
	require.NoError(t, err)
	format := avroFormat()
	format.Value = "framed"
	r, err = Open(cfg, format)
	require.NoError(t, err)
	bytesSchema := &connect.Schema{Kind: connect.KindBytes}
	for _, compression := range []byte{0, 5} {
		framed[1] = compression
		got, err := r.Value.Append(nil, "orders", bytesSchema, connect.Buffer(framed))
		require.NoError(t, err)
		require.Equal(t, framed, got)
	}
	calls := len(f.calls)
	_, err = r.Value.Append(nil, "orders", bytesSchema, connect.Buffer(framed))
	require.NoError(t, err)
	require.Len(t, f.calls, calls, "the id is known")
	_, err = r.Value.Append(nil, "invoices", bytesSchema, connect.Buffer(framed))
	requireRow(t, err, "is none of subject invoices")
	f.versions[0].ARN = strings.Replace(f.versions[0].ARN, "default-registry", "another", 1)
	again, err := Open(cfg, format)
	require.NoError(t, err)
	_, err = again.Value.Append(nil, "orders", bytesSchema, connect.Buffer(framed))
	requireRow(t, err, "is none of subject orders")
	framed[17]++
	_, err = r.Value.Append(nil, "orders", bytesSchema, connect.Buffer(framed))
	requireRow(t, err, "is none of subject orders")
	for _, b := range [][]byte{framed[:17], append([]byte{3, 1}, framed[2:]...), append([]byte{0, 0}, framed[2:]...)} {
		_, err = r.Value.Append(nil, "orders", bytesSchema, connect.Buffer(b))
		requireRow(t, err, "do not begin with a schema id")
	}
}

func TestGlue_DistinguishesTheRowFromTheRegistry(t *testing.T) {
	f, cfg := newGlueFake(t)
	write := func(change func(*router.Format)) error {
		format := avroFormat()
		if change != nil {
			change(&format)
		}
		r, err := Open(cfg, format)
		require.NoError(t, err)
		_, err = r.Value.Append(nil, "orders", orderSchema, order(7, nil))
		return err
	}
	for kind, want := range map[string]error{"AccessDeniedException": connect.ErrRegistryLogin, "ExpiredTokenException": connect.ErrRegistryLogin,
		"ThrottlingException": connect.ErrRegistry, "ConcurrentModificationException": connect.ErrRegistry,
		"ResourceNumberLimitExceededException": connect.ErrRegistry, "RequestExpired": connect.ErrRegistry} {
		f.fail = func(string) (int, string) { return http.StatusBadRequest, kind }
		require.ErrorIs(t, write(nil), want, kind)
	}
	f.fail = func(string) (int, string) { return http.StatusInternalServerError, "InternalServiceException" }
	require.ErrorIs(t, write(nil), connect.ErrRegistry)
	f.fail = func(string) (int, string) { return http.StatusBadRequest, notThere }
	require.ErrorContains(t, Ping(t.Context(), cfg), "set registry.registry_name")
	err := write(nil)
	require.ErrorIs(t, err, connect.ErrRegistryHalt, "there is nothing to create the schema in")
	require.ErrorContains(t, err, "set registry.registry_name")
	f.fail = func(string) (int, string) { return http.StatusBadRequest, "InvalidInputException" }
	requireRow(t, write(nil), "the registry refuses its schema for name orders: InvalidInputException: as the test says")
	f.fail = nil

	requireRow(t, write(func(format *router.Format) { format.ValueAutoRegister = false }), "does not have its schema under name orders")
	require.Empty(t, f.versions)
	r, err := Preview(cfg, avroFormat())
	require.NoError(t, err)
	b, err := r.Value.Append(nil, "orders", orderSchema, order(7, nil))
	require.NoError(t, err)
	require.Equal(t, make([]byte, 18), b[:18], "it would be registered")
	require.Empty(t, f.versions)

	f.status = "FAILURE"
	requireRow(t, write(nil), "the version does not fit the compatibility mode")
	f.versions[0].Status, f.versions[0].Definition = "AVAILABLE", `"string"`
	f.fail = nil
	f.versions = append(f.versions, f.versions[0])
	f.status = "AVAILABLE"
	require.NoError(t, write(nil), "another version is registered")
	require.Len(t, f.versions, 3)

	f.looks = 1 << 30
	cfg.Timeout = 5 * time.Second // it registers the version first
	f.versions = nil
	require.ErrorContains(t, write(nil), "the version is still being checked")

	f.Close()
	require.ErrorIs(t, write(nil), connect.ErrRegistry)
	cfg.OnUnavailable = Halt
	require.ErrorIs(t, write(nil), connect.ErrRegistryHalt)
	require.NoError(t, os.Unsetenv("AWS_ACCESS_KEY_ID"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	require.ErrorContains(t, write(nil), "registry.aws")
}

func TestGlue_RefusesWhatItDoesNotHave(t *testing.T) {
	_, cfg := newGlueFake(t)
	cfg.URLs = append(cfg.URLs, "https://glue.example.com")
	cfg.RegistryName = ""
	require.ErrorContains(t, cfg.Validate(), "registry.urls: AWS Glue has one endpoint")
	require.NotContains(t, cfg.Validate().Error(), "headers")
	cfg.Headers = []string{"a=b"}
	require.ErrorContains(t, cfg.Validate(), `registry.headers: has no place with framing = "glue"`)
	cfg.Framing = Confluent
	cfg.AWS.Region = "eu-central-1"
	require.ErrorContains(t, cfg.Validate(), "registry.aws: has no effect")
	cfg = DefaultConfig()
	require.False(t, cfg.IsSet())
	cfg.Framing = Glue
	require.True(t, cfg.IsSet(), "the endpoint is that of the region")
	require.NoError(t, cfg.Validate())
	cfg.RegistryName = ""
	require.ErrorContains(t, cfg.Validate(), "registry.registry_name: is empty")
}
