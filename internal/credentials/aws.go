package credentials

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-msk-iam-sasl-signer-go/signer"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/feature/rds/auth"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
)

// AWS is a section [….aws]: which identity signs. Credentials come from AWS's default chain:
// environment, shared files, web identity (IRSA), EKS pod identity and ECS, instance metadata.
type AWS struct {
	Region  string `toml:"region"`   // empty: that of the host's name, or of the chain
	Profile string `toml:"profile"`  // of the shared files; empty: AWS_PROFILE, or default
	RoleARN string `toml:"role_arn"` // a role to assume; empty: none
	// name of the session of that role, in AWS's audit log
	RoleSessionName string `toml:"role_session_name"`
	ExternalID      string `toml:"external_id"` // as the trust policy of that role requires it
}

// IsSet reports whether any key of the section is given.
func (c AWS) IsSet() bool { return c != AWS{} }

// roleARN is the form of a role's name.
var roleARN = regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/.+$`)

// Validate reports every setting that cannot be, by its key in the section.
func (c AWS) Validate(bad func(key, format string, args ...any)) {
	if c.RoleARN != "" && !roleARN.MatchString(c.RoleARN) {
		bad("role_arn", "%q is not like arn:aws:iam::123456789012:role/postrider", c.RoleARN)
	}
	if c.RoleARN == "" && (c.RoleSessionName != "" || c.ExternalID != "") {
		bad("role_arn", "is empty although role_session_name or external_id is given")
	}
}

// MSKToken signs a login to Amazon MSK. host is a broker, for its region. section is the name of
// the section, for errors. It blocks while credentials are obtained.
func (c AWS) MSKToken(ctx context.Context, section, host string) (Token, error) {
	provider, region, err := c.provider(ctx, section, host)
	if err != nil {
		return Token{}, err
	}
	value, endMillis, err := signer.GenerateAuthTokenFromCredentialsProvider(ctx, region, provider)
	if err != nil {
		return Token{}, c.failure(ctx, section, err)
	}
	t := Token{Value: value, Expires: time.UnixMilli(endMillis)}
	// A signature is worth nothing after the end of the credentials.
	if used, err := provider.Retrieve(ctx); err == nil && used.CanExpire &&
		used.Expires.Before(t.Expires) {
		t.Expires = used.Expires
	}
	return t, nil
}

// RDSToken signs a login to RDS or Aurora, which is the password of one connection. address is
// host:port as the server is addressed.
func (c AWS) RDSToken(ctx context.Context, section, address, user string) (string, error) {
	provider, region, err := c.provider(ctx, section, address)
	if err != nil {
		return "", err
	}
	token, err := auth.BuildAuthToken(ctx, address, region, user, provider)
	if err != nil {
		return "", c.failure(ctx, section, err)
	}
	return token, nil
}

// inHost is the region in the name of a broker or a database server of AWS.
var inHost = regexp.MustCompile(`\.([a-z]{2}(?:-[a-z]+)+-[0-9]+)\.(?:rds\.)?amazonaws\.com`)

// provider resolves the chain, and the region.
func (c AWS) provider(ctx context.Context, section, host string) (aws.CredentialsProvider, string,
	error) {
	options := []func(*config.LoadOptions) error{}
	region := c.Region
	if m := inHost.FindStringSubmatch(host); region == "" && m != nil {
		region = m[1]
	}
	if region != "" {
		options = append(options, config.WithRegion(region))
	}
	if c.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(c.Profile))
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, "", &Error{Class: ErrRefused, Err: err,
			Text: "AWS credentials (" + section + "): " + plain(err.Error()),
			Hint: "check " + section + ".profile, and the files ~/.aws/config and credentials"}
	}
	if loaded.Region == "" {
		return nil, "", &Error{Class: ErrRefused, Text: "AWS credentials: no region is known",
			Hint: "set " + section + ".region, or AWS_REGION"}
	}
	if c.RoleARN == "" {
		return loaded.Credentials, loaded.Region, nil
	}
	assume := stscreds.NewAssumeRoleProvider(sts.NewFromConfig(loaded), c.RoleARN,
		func(o *stscreds.AssumeRoleOptions) {
			o.RoleSessionName = cmp.Or(c.RoleSessionName, "postrider")
			if c.ExternalID != "" {
				o.ExternalID = &c.ExternalID
			}
		})
	return aws.NewCredentialsCache(assume), loaded.Region, nil
}

// failure words an error of the SDK, which names requests but no secrets.
func (c AWS) failure(ctx context.Context, section string, err error) error {
	e := &Error{Class: ErrUnavailable, Err: err, Text: "AWS credentials (" + section + "): ",
		Hint: "try aws sts get-caller-identity where the relay runs, as its user and with its " +
			"environment"}
	var answer smithy.APIError
	switch {
	case ctx.Err() != nil:
		e.Text += "no answer in time"
	case errors.As(err, &answer):
		e.Text += plain(fmt.Sprintf("%s: %s", answer.ErrorCode(), answer.ErrorMessage()))
		if answer.ErrorFault() != smithy.FaultServer {
			e.Class = ErrRefused
		}
		if strings.Contains(answer.ErrorCode(), "AccessDenied") {
			e.Hint = "check the role's trust policy and the permissions of the identity: " + e.Hint
		}
	default:
		e.Text += plain(innermost(err).Error())
	}
	return e
}

func innermost(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return innermost(inner)
	}
	return err
}
