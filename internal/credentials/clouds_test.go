package credentials_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/credentials"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/test/parts"
)

// The endpoint that App Service, Container Apps and Azure Arc's agents have on the machine.
func TestAzure_TakesAManagedIdentity(t *testing.T) {
	var got url.Values
	status := http.StatusOK
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.Query()
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"access_token":"entra.token","token_type":"Bearer","expires_on":"%d",`+
			`"resource":"r"}`, time.Now().Add(time.Hour).Unix())
	}))
	t.Cleanup(endpoint.Close)
	t.Setenv("AZURE_FEDERATED_TOKEN_FILE", "")
	t.Setenv("AZURE_CLIENT_SECRET", "")
	t.Setenv("AZURE_CLIENT_CERTIFICATE_PATH", "")
	t.Setenv("IDENTITY_ENDPOINT", endpoint.URL)
	t.Setenv("IDENTITY_HEADER", "header-canary")
	login := credentials.Azure{ClientID: "11111111-2222-3333-4444-555555555555"}
	token, err := login.Token(parts.Within(t, patience), "sink.kafka.sasl.azure",
		credentials.EventHubsScope("orders.servicebus.windows.net"))
	require.NoError(t, err)
	require.Equal(t, "entra.token", token.Value)
	require.WithinDuration(t, time.Now().Add(time.Hour), token.Expires, time.Minute)
	require.Equal(t, "https://orders.servicebus.windows.net", got.Get("resource"))
	require.Equal(t, login.ClientID, got.Get("client_id"))

	status = http.StatusBadRequest
	login.ClientID = "99999999-2222-3333-4444-555555555555" // no token of it is cached
	_, err = login.Token(parts.Within(t, patience), "sink.kafka.sasl.azure",
		credentials.EventHubsScope("orders.servicebus.windows.net"))
	t.Log(err)
	require.ErrorIs(t, err, credentials.ErrRefused)
	require.NotContains(t, err.Error(), "canary")
}

func TestAzure_NamesWhatIsMissing(t *testing.T) {
	t.Setenv("AZURE_FEDERATED_TOKEN_FILE", file(t, "eyJ.federated.token"))
	t.Setenv("AZURE_TENANT_ID", "")
	t.Setenv("AZURE_CLIENT_ID", "")
	_, err := credentials.Azure{}.Token(parts.Within(t, patience), "postgres.azure",
		credentials.AzurePostgreSQLScope)
	t.Log(err)
	require.ErrorIs(t, err, credentials.ErrRefused)
	require.ErrorContains(t, err, "workload identity")
	require.ErrorContains(t, err, "check postgres.azure.tenant_id and client_id")
}

// google is Google's token endpoint, and its metadata server.
func google(t *testing.T, status *int) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Metadata-Flavor", "Google")
		w.WriteHeader(*status)
		if *status != http.StatusOK {
			_, _ = fmt.Fprint(w, `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`)
			return
		}
		_, _ = fmt.Fprint(w, `{"access_token":"ya29.token","token_type":"Bearer","expires_in":3599}`)
	}
	mux.HandleFunc("/token", answer)
	mux.HandleFunc("/computeMetadata/v1/instance/service-accounts/default/token", answer)
	mux.HandleFunc("/computeMetadata/v1/instance/service-accounts/default/email",
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Metadata-Flavor", "Google")
			_, _ = fmt.Fprint(w, "machine@example.iam.gserviceaccount.com")
		})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// requireGoogle checks the form in which the broker takes an access token.
func requireGoogle(t *testing.T, token credentials.Token, err error, email string) {
	t.Helper()
	require.NoError(t, err)
	part := strings.Split(token.Value, ".")
	require.Len(t, part, 3)
	text := make([]string, 3)
	for i := range part {
		b, err := base64.RawURLEncoding.DecodeString(part[i])
		require.NoError(t, err)
		text[i] = string(b)
	}
	require.JSONEq(t, `{"typ":"JWT","alg":"GOOG_OAUTH2_TOKEN"}`, text[0])
	var claims map[string]any
	require.NoError(t, json.Unmarshal([]byte(text[1]), &claims))
	require.Equal(t, email, claims["sub"])
	require.Equal(t, "Google", claims["iss"])
	require.InDelta(t, time.Now().Add(time.Hour).Unix(), claims["exp"], 60)
	require.Equal(t, "ya29.token", text[2])
}

// serviceAccount is a file with the key of one, whose tokens come from endpoint.
func serviceAccount(t *testing.T, endpoint string) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	account, err := json.Marshal(map[string]string{"type": "service_account",
		"client_email": "postrider@example.iam.gserviceaccount.com", "private_key_id": "1",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
			Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		"token_uri": endpoint})
	require.NoError(t, err)
	return file(t, string(account))
}

func TestGoogle_TakesAServiceAccountsKey(t *testing.T) {
	status := http.StatusOK
	server := google(t, &status)
	login := credentials.Google{CredentialsFile: serviceAccount(t, server.URL+"/token")}
	token, err := login.KafkaToken(parts.Within(t, patience), "sink.kafka.sasl.google", "")
	requireGoogle(t, token, err, "postrider@example.iam.gserviceaccount.com")
	token, err = login.Token(parts.Within(t, patience), "postgres.google", credentials.CloudSQLScope)
	require.NoError(t, err)
	require.Equal(t, "ya29.token", token.Value)

	status = http.StatusBadRequest
	_, err = login.Token(parts.Within(t, patience), "postgres.google", credentials.CloudSQLScope)
	t.Log(err)
	require.ErrorIs(t, err, credentials.ErrRefused)
	require.ErrorContains(t, err, "Invalid JWT Signature")

	broken := credentials.Google{CredentialsFile: file(t, "key-canary")}
	_, err = broken.Token(parts.Within(t, patience), "postgres.google", credentials.CloudSQLScope)
	require.ErrorIs(t, err, credentials.ErrRefused)
	require.NotContains(t, err.Error(), "key-canary")
}

// A token of Kubernetes, exchanged at Google's STS (workload identity federation).
func TestGoogle_TakesAFederatedIdentity(t *testing.T) {
	status := http.StatusOK
	server := google(t, &status)
	account, err := json.Marshal(map[string]any{"type": "external_account",
		"audience":           "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
		"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": server.URL + "/token",
		"credential_source": map[string]string{"file": file(t, "eyJ.kubernetes.token")}})
	require.NoError(t, err)
	login := credentials.Google{CredentialsFile: file(t, string(account))}
	token, err := login.KafkaToken(parts.Within(t, patience), "sink.kafka.sasl.google",
		"federated@example.iam.gserviceaccount.com")
	requireGoogle(t, token, err, "federated@example.iam.gserviceaccount.com")
}

func TestGoogle_TakesTheMachinesIdentity(t *testing.T) {
	status := http.StatusOK
	server := google(t, &status)
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://"))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
	t.Setenv("HOME", t.TempDir()) // no login of gcloud
	token, err := credentials.Google{}.KafkaToken(parts.Within(t, patience), "sink.kafka.sasl.google", "")
	requireGoogle(t, token, err, "machine@example.iam.gserviceaccount.com")
}

// An endpoint that takes the request and never answers holds up neither a connection nor a stop.
func TestLogins_EndWithTheirContext(t *testing.T) {
	const section, atOnce = "section", 15 * time.Second
	released := make(chan struct{})
	mute := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		<-released
	}))
	t.Cleanup(func() { close(released); mute.Close() })
	for _, name := range []string{"GOOGLE_APPLICATION_CREDENTIALS", "AZURE_FEDERATED_TOKEN_FILE",
		"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH", "AWS_ACCESS_KEY_ID", "AWS_PROFILE",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(mute.URL, "http://"))
	t.Setenv("IDENTITY_ENDPOINT", mute.URL)
	t.Setenv("IDENTITY_HEADER", "header")
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", mute.URL)
	key := credentials.Google{CredentialsFile: serviceAccount(t, mute.URL)}
	provider := credentials.OIDC{TokenURL: mute.URL, ClientID: "postrider",
		ClientSecret: secret.Of("secret")}
	for name, login := range map[string]func(context.Context) error{
		"the key of a service account of Google": func(ctx context.Context) error {
			_, err := key.Token(ctx, section, credentials.CloudSQLScope)
			return err
		},
		"the same for Kafka": func(ctx context.Context) error {
			_, err := key.KafkaToken(ctx, section, "")
			return err
		},
		"Google's metadata server": func(ctx context.Context) error {
			_, err := credentials.Google{}.KafkaToken(ctx, section, "")
			return err
		},
		"Entra": func(ctx context.Context) error {
			_, err := credentials.Azure{ClientID: "77777777-2222-3333-4444-555555555555"}.Token(ctx,
				section, credentials.AzurePostgreSQLScope)
			return err
		},
		"MSK": func(ctx context.Context) error {
			_, err := credentials.AWS{Region: "eu-central-1"}.MSKToken(ctx, section, "kafka")
			return err
		},
		"RDS": func(ctx context.Context) error {
			_, err := credentials.AWS{Region: "eu-central-1"}.RDSToken(ctx, section, "db:5432", "relay")
			return err
		},
		"an OpenID Connect provider": func(ctx context.Context) error {
			_, err := provider.Fetch(ctx, section)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		ended := make(chan error, 1)
		go func() { ended <- login(ctx) }() // ends by now, or with mute
		select {
		case err := <-ended:
			require.ErrorIs(t, err, credentials.ErrUnavailable, name)
			require.ErrorContains(t, err, "no answer in time", name)
		case <-time.After(atOnce):
			assert.Fail(t, "it waits on", name)
		}
		cancel()
	}
}
