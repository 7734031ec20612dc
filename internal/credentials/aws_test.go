package credentials_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/credentials"
	"github.com/postrider/postrider/test/parts"
)

// awsKey and awsSecret are those of AWS's documentation.
const (
	awsKey    = "AKIAIOSFODNN7EXAMPLE"
	awsSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
)

// noAWS is an environment in which the chain finds nothing.
func noAWS(t *testing.T) {
	t.Helper()
	for _, name := range os.Environ() {
		if name, _, _ := strings.Cut(name, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	dir := t.TempDir()
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "credentials"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// requireSigned verifies a presigned URL as AWS's documentation of Signature Version 4 says
// ("Create a signed AWS API request"), by none of the SDK's code.
func requireSigned(t *testing.T, signed *url.URL, service, secret string) {
	t.Helper()
	query := signed.Query()
	signature := query.Get("X-Amz-Signature")
	require.Len(t, signature, 64)
	query.Del("X-Amz-Signature")
	query.Del("User-Agent") // MSK's clients add it afterwards
	scope := strings.SplitN(query.Get("X-Amz-Credential"), "/", 2)[1]
	parts := strings.Split(scope, "/") // date/region/service/aws4_request
	require.Equal(t, service, parts[2])
	require.Equal(t, "aws4_request", parts[3])
	require.Equal(t, "host", query.Get("X-Amz-SignedHeaders"))
	path := signed.Path
	if path == "" {
		path = "/"
	}
	empty := sha256.Sum256(nil)
	canonical := strings.Join([]string{"GET", path,
		strings.ReplaceAll(query.Encode(), "+", "%20"), "host:" + signed.Host + "\n", "host",
		hex.EncodeToString(empty[:])}, "\n")
	digest := sha256.Sum256([]byte(canonical))
	toSign := strings.Join([]string{"AWS4-HMAC-SHA256", query.Get("X-Amz-Date"), scope,
		hex.EncodeToString(digest[:])}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range append(parts, toSign) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	require.Equal(t, hex.EncodeToString(key), signature)
}

func mskURL(t *testing.T, token credentials.Token) *url.URL {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(token.Value)
	require.NoError(t, err)
	signed, err := url.Parse(string(text))
	require.NoError(t, err)
	return signed
}

func TestAWS_SignsForMSK(t *testing.T) {
	noAWS(t)
	t.Setenv("AWS_ACCESS_KEY_ID", awsKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", awsSecret)
	for host, region := range map[string]string{
		"b-1.orders.a1b2c3.c2.kafka.eu-central-1.amazonaws.com":                  "eu-central-1",
		"boot-a1b2c3.c1.kafka-serverless.us-gov-west-1.amazonaws.com":            "us-gov-west-1",
		"b-1-public.orders.a1b2c3.c2.kafka.cn-northwest-1.amazonaws.com.cn":      "cn-northwest-1",
		"kafka.internal.example.com":                                             "ap-southeast-2",
		"vpce-1.svc-2.us-east-1.vpce.amazonaws.com.evil.example.com/x?y=z&a=b#f": "ap-southeast-2",
	} {
		t.Run(host, func(t *testing.T) {
			t.Setenv("AWS_REGION", "ap-southeast-2")
			token, err := credentials.AWS{}.MSKToken(t.Context(), "sink.kafka.sasl.aws", host)
			require.NoError(t, err)
			signed := mskURL(t, token)
			requireSigned(t, signed, "kafka-cluster", awsSecret)
			require.Equal(t, "kafka."+region+".amazonaws.com", signed.Host)
			require.Equal(t, "kafka-cluster:Connect", signed.Query().Get("Action"))
			require.True(t, strings.HasPrefix(signed.Query().Get("X-Amz-Credential"), awsKey+"/"))
			require.WithinDuration(t, time.Now().Add(15*time.Minute), token.Expires, time.Minute)
		})
	}
	token, err := credentials.AWS{Region: "sa-east-1"}.MSKToken(t.Context(), "s",
		"b-1.orders.a1b2c3.c2.kafka.eu-central-1.amazonaws.com")
	require.NoError(t, err)
	require.Equal(t, "kafka.sa-east-1.amazonaws.com", mskURL(t, token).Host)
}

func TestAWS_SignsForRDS(t *testing.T) {
	noAWS(t)
	t.Setenv("AWS_ACCESS_KEY_ID", awsKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", awsSecret)
	const address = "orders.cluster-a1b2.eu-west-3.rds.amazonaws.com:5432"
	token, err := credentials.AWS{}.RDSToken(t.Context(), "postgres.aws", address, "post rider")
	require.NoError(t, err)
	signed, err := url.Parse("https://" + token)
	require.NoError(t, err)
	requireSigned(t, signed, "rds-db", awsSecret)
	require.Equal(t, address, signed.Host)
	require.Equal(t, "connect", signed.Query().Get("Action"))
	require.Equal(t, "post rider", signed.Query().Get("DBUser"))
	require.Contains(t, signed.Query().Get("X-Amz-Credential"), "/eu-west-3/")
}

// sts answers AssumeRole and AssumeRoleWithWebIdentity with credentials that end at end.
func sts(t *testing.T, requests *[]url.Values, end time.Time) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		*requests = append(*requests, r.PostForm)
		action := r.PostForm.Get("Action")
		w.Header().Set("Content-Type", "text/xml")
		if r.PostForm.Get("ExternalId") == "wrong" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>`+
				`<Message>not authorized to perform: sts:AssumeRole</Message></Error></ErrorResponse>`)
			return
		}
		_, _ = fmt.Fprintf(w, `<%[1]sResponse><%[1]sResult><Credentials>`+
			`<AccessKeyId>ASIASESSION</AccessKeyId><SecretAccessKey>session-canary</SecretAccessKey>`+
			`<SessionToken>tok/en=</SessionToken><Expiration>%[2]s</Expiration></Credentials>`+
			`</%[1]sResult></%[1]sResponse>`, action, end.UTC().Format(time.RFC3339))
	}))
	t.Cleanup(server.Close)
	return server
}

func requireSession(t *testing.T, token credentials.Token, err error) {
	t.Helper()
	require.NoError(t, err)
	signed := mskURL(t, token)
	requireSigned(t, signed, "kafka-cluster", "session-canary")
	require.Equal(t, "tok/en=", signed.Query().Get("X-Amz-Security-Token"))
}

func TestAWS_AssumesARole(t *testing.T) {
	noAWS(t)
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_ACCESS_KEY_ID", awsKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", awsSecret)
	var requests []url.Values
	end := time.Now().Add(5 * time.Minute) // before the signature's own fifteen
	t.Setenv("AWS_ENDPOINT_URL_STS", sts(t, &requests, end).URL)
	login := credentials.AWS{RoleARN: "arn:aws:iam::123456789012:role/postrider",
		RoleSessionName: "orders", ExternalID: "external"}
	token, err := login.MSKToken(t.Context(), "sink.kafka.sasl.aws", "kafka")
	requireSession(t, token, err)
	require.Equal(t, "AssumeRole", requests[0].Get("Action"))
	require.Equal(t, "orders", requests[0].Get("RoleSessionName"))
	require.Equal(t, "external", requests[0].Get("ExternalId"))
	require.WithinDuration(t, end, token.Expires, time.Second)

	login.ExternalID = "wrong"
	_, err = login.MSKToken(t.Context(), "sink.kafka.sasl.aws", "kafka")
	require.ErrorIs(t, err, credentials.ErrRefused)
	require.ErrorContains(t, err, "AccessDenied: not authorized to perform: sts:AssumeRole")
	require.ErrorContains(t, err, "trust policy")
}

// IAM roles for service accounts (EKS).
func TestAWS_TakesAWebIdentity(t *testing.T) {
	noAWS(t)
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/postrider")
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", file(t, "eyJ.web.identity"))
	var requests []url.Values
	t.Setenv("AWS_ENDPOINT_URL_STS", sts(t, &requests, time.Now().Add(time.Hour)).URL)
	token, err := credentials.AWS{}.MSKToken(t.Context(), "sink.kafka.sasl.aws", "kafka")
	requireSession(t, token, err)
	require.Equal(t, "AssumeRoleWithWebIdentity", requests[0].Get("Action"))
	require.Equal(t, "eyJ.web.identity", requests[0].Get("WebIdentityToken"))
}

func TestAWS_TakesAPodIdentity(t *testing.T) {
	noAWS(t)
	t.Setenv("AWS_REGION", "eu-central-1")
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "eyJ.pod.identity" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = fmt.Fprintf(w, `{"AccessKeyId":"ASIAPOD","SecretAccessKey":"session-canary",`+
			`"Token":"tok/en=","Expiration":"%s"}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(agent.Close)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.URL+"/v1/credentials")
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file(t, "eyJ.pod.identity"))
	token, err := credentials.AWS{}.MSKToken(t.Context(), "sink.kafka.sasl.aws", "kafka")
	requireSession(t, token, err)
}

func TestAWS_TakesAProfile(t *testing.T) {
	noAWS(t)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file(t, "[orders]\naws_access_key_id = ASIAFILE\n"+
		"aws_secret_access_key = session-canary\naws_session_token = tok/en=\n"))
	t.Setenv("AWS_CONFIG_FILE", file(t, "[profile orders]\nregion = eu-north-1\n"))
	token, err := credentials.AWS{Profile: "orders"}.MSKToken(t.Context(), "s", "kafka")
	requireSession(t, token, err)
	require.Equal(t, "kafka.eu-north-1.amazonaws.com", mskURL(t, token).Host)

	_, err = credentials.AWS{Profile: "invoices"}.MSKToken(t.Context(), "sink.kafka.sasl.aws", "kafka")
	require.ErrorIs(t, err, credentials.ErrRefused)
	require.ErrorContains(t, err, "sink.kafka.sasl.aws.profile")
}

func TestAWS_SaysWhatIsMissing(t *testing.T) {
	noAWS(t)
	_, err := credentials.AWS{}.MSKToken(t.Context(), "sink.kafka.sasl.aws", "kafka")
	require.ErrorIs(t, err, credentials.ErrRefused)
	require.ErrorContains(t, err, "set sink.kafka.sasl.aws.region")

	t.Setenv("AWS_REGION", "eu-central-1")
	_, err = credentials.AWS{}.MSKToken(parts.Within(t, patience), "sink.kafka.sasl.aws", "kafka")
	t.Log(err)
	require.ErrorIs(t, err, credentials.ErrUnavailable)
	require.ErrorContains(t, err, "aws sts get-caller-identity")
}
