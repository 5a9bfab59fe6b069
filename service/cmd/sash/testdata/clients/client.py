"""Sends the calls that stdin has, one JSON line each ({method, request}), and prints one JSON line for each answer
({code, message, response}), in the protocol's JSON form.

    python3 client.py ADDRESS SCHEMA [CA [CERT KEY]]
"""

import json
import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory


def read(name):
    with open(name, "rb") as file:
        return file.read()


def main(address, schema, ca=None, cert=None, key=None):
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(read(schema)).file:
        pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    if ca is None:
        channel = grpc.insecure_channel(address)
    else:
        pair = {"private_key": read(key), "certificate_chain": read(cert)} if cert else {}
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(read(ca), **pair))
    with channel:
        for line in sys.stdin:
            call = json.loads(line)
            service, name = call["method"].split("/")
            method = pool.FindServiceByName(service).FindMethodByName(name)
            request = json_format.ParseDict(call["request"], factory.GetPrototype(method.input_type)(), descriptor_pool=pool)
            ask = channel.unary_unary(
                "/" + call["method"],
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=factory.GetPrototype(method.output_type).FromString,
            )
            answer = {"code": "OK", "message": ""}
            try:
                answer["response"] = json_format.MessageToDict(ask(request, timeout=10), descriptor_pool=pool)
            except grpc.RpcError as err:
                answer = {"code": err.code().name, "message": err.details()}
            print(json.dumps(answer))


main(*sys.argv[1:])
