// An authorization server, oidc-provider: `node oidc_server.mjs NODE_MODULES OPTIONS` prints its port.
// OPTIONS is JSON: `methods` of client authentication, `ttl` of access tokens in seconds, `registration` or not,
// `key`, the public key (JWK) of the client `machine-with-key`.
import { createServer } from 'node:http';

const [modules, given] = process.argv.slice(2);
const { Provider } = await import(`${modules}/oidc-provider/lib/index.js`);
const options = { ttl: 600, registration: true, device: true, interval: 5, ...JSON.parse(given) };

const byHand = options.methods?.includes('client_secret_basic') === false ? 'client_secret_post' : 'client_secret_basic';

const machine = { redirect_uris: [], response_types: [], grant_types: ['client_credentials'], scope: 'read' };

const server = createServer();
await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
const issuer = `http://127.0.0.1:${server.address().port}`;
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'protected-server',
      client_secret: 'introspects',
      token_endpoint_auth_method: 'client_secret_post',
      redirect_uris: [],
      grant_types: [],
      response_types: [],
    },
    {
      client_id: 'by-hand',
      client_secret: 'canary-secret&+%',
      token_endpoint_auth_method: byHand,
      application_type: 'native',
      redirect_uris: ['http://127.0.0.1/callback'],
      grant_types: ['authorization_code', 'refresh_token'],
    },
    { ...machine, client_id: 'machine', client_secret: 'canary-secret&+%', token_endpoint_auth_method: byHand },
    ...(options.key
      ? [
          {
            ...machine,
            client_id: 'machine-with-key',
            token_endpoint_auth_method: 'private_key_jwt',
            jwks: { keys: [options.key] },
          },
        ]
      : []),
  ],
  cookies: { keys: ['tests'] },
  ...(options.methods && { clientAuthMethods: options.methods }),
  features: {
    clientCredentials: { enabled: true },
    deviceFlow: { enabled: options.device },
    devInteractions: { enabled: true },
    introspection: { enabled: true },
    registration: { enabled: options.registration },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_ctx, resource) => ({ scope: 'read write', audience: resource }),
      useGrantedResource: () => true,
    },
    revocation: { enabled: true },
  },
  findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  issueRefreshToken: () => true,
  rotateRefreshToken: true,
  scopes: ['openid', 'offline_access', 'read', 'write', 'admin'],
  ttl: { AccessToken: options.ttl, ClientCredentials: options.ttl, DeviceCode: options.code ?? 600, Grant: 3600, Interaction: 600, RefreshToken: 3600, Session: 3600 },
});
server.on('request', provider.callback());
console.log(server.address().port);
