// Writes echarts.min.js, its gzip, its hash and its license into the directory that is its argument, from the packages below it.
import { createHash } from 'node:crypto';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const dir = process.argv[2];
const read = (name) => readFileSync(`${dir}/${name}`, 'utf8').replaceAll('\r', '').trim();
const { packages } = JSON.parse(read('package-lock.json'));
const bundled = Object.entries(packages).filter(([path, { dev }]) => path !== '' && !dev);
const banner = ['/*!', ...bundled.map(([path, { version, integrity }]) => `${path.replace('node_modules/', '')} ${version} ${integrity}`),
  '', read('node_modules/echarts/NOTICE'), 'Licensed under the Apache License, Version 2.0: https://www.apache.org/licenses/LICENSE-2.0',
  '', 'zrender:', read('node_modules/zrender/LICENSE'), '', 'tslib:', read('node_modules/tslib/LICENSE.txt'), '*/'].join('\n');
const { outputFiles } = await build({
  entryPoints: [`${dir}/entry.mjs`], bundle: true, minify: true, format: 'iife', globalName: 'echarts', target: 'es2020', write: false,
  banner: { js: banner },
});
const script = outputFiles[0].contents;
writeFileSync(`${dir}/echarts.min.js`, script);
writeFileSync(`${dir}/echarts.min.js.gz`, gzipSync(script, { level: 9 }));
writeFileSync(`${dir}/echarts.min.js.sha256`, createHash('sha256').update(script).digest('hex') + '  echarts.min.js\n');
copyFileSync(`${dir}/node_modules/echarts/LICENSE`, `${dir}/LICENSE`);
