# python3-redis. Arguments: the name of a subject, the protocol (2).
import os, sys
import redis

client = redis.Redis(port=int(os.environ["SASH_PORT"]), password=os.environ["SASH_TOKEN"])
print("throttle", *client.execute_command("CL.THROTTLE", sys.argv[1], 2, 3, 60))
print("allowed", sum(client.execute_command("SASH.ALLOW", "web", "ENTRY", "user", sys.argv[1])[1] for _ in range(7)))
once, limit = sys.argv[1] + " once", [0, 1, 60]
script = client.register_script("return redis.call('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3])")
with client.pipeline() as transaction:
    transaction.execute_command("CL.THROTTLE", once, *limit)
    script(keys=[once], args=limit, client=transaction)
    print("multi", *(reply[0] for reply in transaction.execute()), script(keys=[once], args=limit)[0])
try:
    client.execute_command("SASH.ALLOW", "web", "ENTRY")
except redis.ResponseError as e:
    print("error ERR", e)  # which drops the code of such an error
try:
    redis.Redis(port=int(os.environ["SASH_PORT"]), password="wrong").ping()
except redis.RedisError as e:
    print("denied", e)
