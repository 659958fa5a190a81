// A provider of OpenID Connect for tests, made of the package oidc-provider. A line of JSON on standard input has its client
// and its accounts; it prints its address, and ends with its standard input. Its keys are new at each start. Any password
// will do.
import { createInterface } from 'node:readline'
import { generateKeyPairSync, randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import { pathToFileURL } from 'node:url'

const { default: Provider } = await import(pathToFileURL(process.env.NODE_PATH + '/oidc-provider/lib/index.js').href)

createInterface({ input: process.stdin })
  .on('close', () => process.exit(0))
  .once('line', async (line) => {
    const input = JSON.parse(line)
    const server = createServer()
    await new Promise((listening) => server.listen(input.port, '127.0.0.1', listening))
    const issuer = `http://127.0.0.1:${server.address().port}`
    const key = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' })
    const provider = new Provider(issuer, {
      clients: [{ client_id: input.client, client_secret: input.secret, redirect_uris: [input.redirect] }],
      jwks: { keys: [{ ...key, kid: randomUUID(), use: 'sig' }] },
      claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['preferred_username'] },
      conformIdTokenClaims: input.conform, // then the ID token has the subject alone
      pkce: { required: () => true },
      cookies: { keys: ['test'] },
      findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...input.accounts[id] }) }),
    })
    server.on('request', provider.callback())
    console.log(issuer)
  })
