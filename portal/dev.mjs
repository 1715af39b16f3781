// A development server: serves the pack as the controller does, and forwards /v1 and WebSockets to a controller's unix socket.
//   node dev.mjs --socket $ACEQUIA_HOME/run/api.sock [--port 8123] [--pack FILE]
// Whoever reaches the port acts as the user who runs this: it listens on the loopback address only, and is not for others.
import { existsSync, readFileSync, statSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { dirname, resolve } from 'node:path';
import { pipeline } from 'node:stream';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; media-src 'self'; " +
  "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; " +
  "require-trusted-types-for 'script'; trusted-types 'none'";

function argument(name, otherwise) {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? otherwise : process.argv[at + 1];
}

const socketPath = argument('socket', process.env.ACEQUIA_HOME && `${process.env.ACEQUIA_HOME}/run/api.sock`);
const port = Number(argument('port', '8123'));
const packPath = argument('pack', resolve(here, '../build/portal/portal.pack'));
if (!socketPath) {
  console.error('dev: which controller? Give --socket PATH or set ACEQUIA_HOME');
  process.exit(2);
}
if (!existsSync(packPath)) {
  console.error(`dev: the portal is not built: there is no ${packPath}. Run tools/portal build`);
  process.exit(2);
}

let pack = { at: 0, files: new Map() };
function readPack() {
  const at = statSync(packPath).mtimeMs;
  if (at === pack.at) return pack.files;
  const bytes = readFileSync(packPath);
  let offset = bytes.indexOf('\n\n') + 2;
  const files = new Map();
  for (const line of bytes.subarray(0, offset - 2).toString().split('\n').slice(1)) {
    const [path, type, length, etag] = line.split('\t');
    files.set(path, { type, etag, data: bytes.subarray(offset, offset + Number(length)) });
    offset += Number(length);
  }
  pack = { at, files };
  return files;
}

function serve(request, response) {
  const path = new URL(request.url, 'http://x').pathname;
  const files = readPack();
  const file = files.get(path) ?? (path.split('/').pop().includes('.') ? null : files.get('/index.html'));
  if (!file) {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, {
    'Content-Type': file.type,
    'Content-Encoding': 'gzip',
    'Content-Length': file.data.length,
    'Content-Security-Policy': CSP,
    'Cache-Control': path.startsWith('/assets/') ? 'public, max-age=31536000, immutable' : 'no-cache',
    ETag: `"${file.etag}"`,
    'X-Content-Type-Options': 'nosniff',
    'Referrer-Policy': 'no-referrer',
  });
  response.end(request.method === 'HEAD' ? undefined : file.data);
}

function forward(request, response) {
  const headers = { ...request.headers, host: 'localhost' };
  const upstream = http.request({ socketPath, path: request.url, method: request.method, headers }, answer => {
    response.writeHead(answer.statusCode, answer.headers);
    pipeline(answer, response, () => undefined);  // ends the answer also when the controller goes
  });
  upstream.on('error', e => {
    if (response.headersSent) response.destroy();
    else response.writeHead(502, { 'Content-Type': 'application/json' }).end(JSON.stringify({ error: { code: e.code, message: e.message } }));
  });
  response.on('close', () => upstream.destroy());
  request.pipe(upstream);
}

const isApi = url => /^\/(v1|metrics)(\/|\?|$)/.test(url);
const server = http.createServer((request, response) => (isApi(request.url) ? forward : serve)(request, response));

server.on('upgrade', (request, client, head) => {
  const upstream = net.connect(socketPath, () => {
    const lines = [`${request.method} ${request.url} HTTP/1.1`];
    for (let i = 0; i < request.rawHeaders.length; i += 2) {
      const name = request.rawHeaders[i];
      if (/^(host|origin|cookie)$/i.test(name)) continue;
      lines.push(`${name}: ${request.rawHeaders[i + 1]}`);
    }
    upstream.write(lines.join('\r\n') + '\r\nHost: localhost\r\n\r\n');
    upstream.write(head);
    upstream.pipe(client).pipe(upstream);
  });
  for (const [one, other] of [[upstream, client], [client, upstream]]) one.on('error', () => other.destroy()).on('close', () => other.destroy());
});

server.listen(port, '127.0.0.1', () => console.log(`Portal: http://localhost:${server.address().port}/`));
