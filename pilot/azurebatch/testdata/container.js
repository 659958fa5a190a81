// Makes a container in Azure Storage by Microsoft's own client (@azure/storage-blob), and a SAS for it. Given the name
// of a blob, it prints the blob's content.
'use strict';
const { BlobServiceClient, StorageSharedKeyCredential, ContainerSASPermissions } = require('@azure/storage-blob');

async function main({ url, account, key, container, permissions, minutes, blob }) {
  const service = new BlobServiceClient(url, new StorageSharedKeyCredential(account, key));
  const c = service.getContainerClient(container);
  if (blob) {
    const content = await c.getBlobClient(blob).downloadToBuffer();
    console.log(JSON.stringify({ content: content.toString() }));
    return;
  }
  await c.createIfNotExists();
  const expiresOn = new Date(Date.now() + minutes * 60000);
  const sas = await c.generateSasUrl({ permissions: ContainerSASPermissions.parse(permissions), startsOn: new Date(Date.now() - 3600000), expiresOn });
  console.log(JSON.stringify({ url: sas }));
}

let input = '';
process.stdin.on('data', (d) => (input += d)).on('end', () =>
  main(JSON.parse(input)).catch((e) => {
    console.error(e);
    process.exit(1);
  }));
