// Sends the calls that stdin has, one JSON line each ({method, request}), and prints one JSON line for each answer
// ({code, message, response}), in the protocol's JSON form.
//
//   node client.js ADDRESS SCHEMA [CA [CERT KEY]]
'use strict';

const fs = require('fs');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [address, schema, ca, cert, key] = process.argv.slice(2);
const read = (file) => (file ? fs.readFileSync(file) : null);
const credentials = ca ? grpc.credentials.createSsl(read(ca), read(key), read(cert)) : grpc.credentials.createInsecure();
const packages = grpc.loadPackageDefinition(
  loader.loadFileDescriptorSetFromBuffer(fs.readFileSync(schema), { longs: Number, enums: String, defaults: false }),
);

// From descriptors the loader takes names as they are in the schema, and it knows no JSON form of wrappers and
// durations: here they are.
function renamed(value, name) {
  if (Array.isArray(value)) return value.map((item) => renamed(item, name));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [name(key), renamed(item, name)]));
}

function toRequest(json) {
  const request = renamed(json, (key) => key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`));
  for (const descriptor of request.descriptors || []) {
    if (descriptor.hits_addend !== undefined) descriptor.hits_addend = { value: descriptor.hits_addend };
  }
  return request;
}

function toJSON(message) {
  const response = renamed(message, (key) => key.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase()));
  for (const status of (response && response.statuses) || []) {
    const reset = status.durationUntilReset;
    if (reset) status.durationUntilReset = `${reset.seconds || 0}s`;
  }
  return response;
}

function ask(line) {
  const { method, request } = JSON.parse(line);
  const [service, name] = method.split('/');
  const Client = service.split('.').reduce((at, part) => at[part], packages);
  const client = new Client(address, credentials);
  return new Promise((resolve) => {
    client[name](toRequest(request), { deadline: Date.now() + 10000 }, (err, response) => {
      client.close();
      resolve({ code: grpc.status[err ? err.code : 0], message: err ? err.details : '', response: toJSON(response) });
    });
  });
}

(async () => {
  for (const line of fs.readFileSync(0, 'utf8').split('\n').filter(Boolean)) {
    console.log(JSON.stringify(await ask(line)));
  }
})();
