package credentials

import (
	"context"
	"errors"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// Azure is a section [….azure]: an identity of Microsoft Entra. AZURE_FEDERATED_TOKEN_FILE makes
// it a workload identity (AKS), AZURE_CLIENT_SECRET or AZURE_CLIENT_CERTIFICATE_PATH a service
// principal; else it is the managed identity of the machine.
type Azure struct {
	TenantID string `toml:"tenant_id"` // empty: AZURE_TENANT_ID
	ClientID string `toml:"client_id"` // empty: AZURE_CLIENT_ID, or the system's managed identity
}

// IsSet reports whether any key of the section is given.
func (c Azure) IsSet() bool { return c != Azure{} }

// AzurePostgreSQLScope is the scope of tokens for Azure Database for PostgreSQL.
const AzurePostgreSQLScope = "https://ossrdbms-aad.database.windows.net/.default"

// EventHubsScope is the scope of tokens for a namespace, by its host.
func EventHubsScope(host string) string { return "https://" + host + "/.default" }

// Token obtains one. section is the name of the section, for errors. It blocks until Entra answers
// or ctx ends.
func (c Azure) Token(ctx context.Context, section, scope string) (Token, error) {
	credential, kind, err := c.credential()
	if err != nil {
		return Token{}, &Error{Class: ErrRefused, Err: err,
			Text: "Microsoft Entra, " + kind + ": " + plain(err.Error()),
			Hint: "check " + section + ".tenant_id and client_id, and the variables AZURE_…"}
	}
	got, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	if err == nil {
		err = checkToken(got.Token)
	}
	if err != nil {
		return Token{}, c.failure(ctx, section, kind, err)
	}
	return Token{Value: got.Token, Expires: got.ExpiresOn}, nil
}

// credential chooses by the environment, as Azure's SDKs do. Tools of developers, which these try
// as well, are left out.
func (c Azure) credential() (credential azcore.TokenCredential, kind string, err error) {
	switch {
	case os.Getenv("AZURE_FEDERATED_TOKEN_FILE") != "":
		credential, err = azidentity.NewWorkloadIdentityCredential(
			&azidentity.WorkloadIdentityCredentialOptions{TenantID: c.TenantID, ClientID: c.ClientID})
		return credential, "workload identity", err
	case os.Getenv("AZURE_CLIENT_SECRET") != "",
		os.Getenv("AZURE_CLIENT_CERTIFICATE_PATH") != "":
		credential, err = azidentity.NewEnvironmentCredential(nil)
		return credential, "service principal", err
	}
	options := &azidentity.ManagedIdentityCredentialOptions{}
	if c.ClientID != "" {
		options.ID = azidentity.ClientID(c.ClientID)
	}
	credential, err = azidentity.NewManagedIdentityCredential(options)
	return credential, "managed identity", err
}

func (c Azure) failure(ctx context.Context, section, kind string, err error) error {
	e := &Error{Class: ErrUnavailable, Err: err, Text: "Microsoft Entra, " + kind + ": ",
		Hint: "check that the identity exists and may use the service: az account get-access-token " +
			"with the same client; " + section}
	var refused *azidentity.AuthenticationFailedError
	switch {
	case ctx.Err() != nil:
		e.Text += "no answer in time"
	case errors.As(err, &refused):
		if r := refused.RawResponse; r != nil && refusal(r.StatusCode) {
			e.Class = ErrRefused
		}
		fallthrough
	default:
		e.Text += plain(err.Error())
	}
	return e
}
