package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/core/api/client"
)

// apiTLS names the PEM files for an agent whose client API is under TLS.
type apiTLS struct{ caCert, cert, key string }

func (f *apiTLS) flags(flags *pflag.FlagSet) {
	flags.StringVar(&f.caCert, "api-cacert", "", "PEM `FILE` of the authorities that an agent at https:// is trusted by (default: $FAIRLEAD_API_CACERT, else the system's)")
	flags.StringVar(&f.cert, "api-cert", "", "PEM `FILE` of the certificate to show there (default: $FAIRLEAD_API_CERT)")
	flags.StringVar(&f.key, "api-key", "", "PEM `FILE` of its private key (default: $FAIRLEAD_API_KEY)")
}

// dial connects to the agent at target.
func (a *app) dial(ctx context.Context, target string) (*client.Client, error) {
	if network, _ := client.Address(target); network == "unix" {
		return client.Dial(ctx, target)
	}
	config, err := apiTLS{
		caCert: cmp.Or(a.apiTLS.caCert, a.env.getenv("FAIRLEAD_API_CACERT")),
		cert:   cmp.Or(a.apiTLS.cert, a.env.getenv("FAIRLEAD_API_CERT")),
		key:    cmp.Or(a.apiTLS.key, a.env.getenv("FAIRLEAD_API_KEY")),
	}.config()
	switch {
	case err != nil:
		return nil, err
	case config == nil:
		return client.Dial(ctx, target)
	}
	return client.Dial(ctx, target, client.WithTLS(config))
}

// config reads the files; nil if none is named.
func (f apiTLS) config() (*tls.Config, error) {
	if f == (apiTLS{}) {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.caCert != "" {
		pem, err := os.ReadFile(f.caCert)
		if err != nil {
			return nil, fmt.Errorf("--api-cacert: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--api-cacert: there is no certificate in %s: name a PEM file with those of the authorities", f.caCert)
		}
	}
	switch {
	case f.cert == "" && f.key == "":
		return config, nil
	case f.cert == "" || f.key == "":
		return nil, fmt.Errorf("--api-cert and --api-key go together: a certificate is shown with its private key")
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("--api-cert %s with --api-key %s: %w", f.cert, f.key, err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}
