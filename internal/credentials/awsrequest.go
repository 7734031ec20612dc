package credentials

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Call is a request of AWS's JSON protocol 1.1, in which a header names the operation.
type Call struct {
	Service   string // as AWS signs for it, like glue
	Endpoint  string // empty: https://SERVICE.REGION.amazonaws.com
	Operation string // with the name of the API, like AWSGlue.GetSchemaVersion
	Body      []byte
}

// Send signs a request and sends it. section is the name of the section, for errors; one of the
// credentials is an *Error. It blocks while credentials are obtained, and for the answer.
func (c AWS) Send(ctx context.Context, section string, client *http.Client, call Call) (
	*http.Response, error) {
	provider, region, err := c.provider(ctx, section, call.Endpoint)
	if err != nil {
		return nil, err
	}
	identity, err := provider.Retrieve(ctx)
	if err != nil {
		return nil, c.failure(ctx, section, err)
	}
	endpoint := call.Endpoint
	if endpoint == "" {
		endpoint = "https://" + call.Service + "." + region + ".amazonaws.com"
		if strings.HasPrefix(region, "cn-") { // the partition of China
			endpoint += ".cn"
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(call.Body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-amz-json-1.1")
	r.Header.Set("X-Amz-Target", call.Operation)
	sum := sha256.Sum256(call.Body)
	err = v4.NewSigner().SignHTTP(ctx, identity, r, hex.EncodeToString(sum[:]), call.Service, region,
		time.Now())
	if err != nil {
		return nil, c.failure(ctx, section, err)
	}
	return client.Do(r)
}
