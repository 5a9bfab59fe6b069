# python3-redis. Arguments: the name of a subject, the protocol (2).
import os, sys
import redis

client = redis.Redis(port=int(os.environ["SASH_PORT"]), password=os.environ["SASH_TOKEN"])
print("throttle", *client.execute_command("CL.THROTTLE", sys.argv[1], 2, 3, 60))
print("allowed", sum(client.execute_command("SASH.ALLOW", "web", "ENTRY", "user", sys.argv[1])[1] for _ in range(7)))
try:
    client.execute_command("SASH.ALLOW", "web", "ENTRY")
except redis.ResponseError as e:
    print("error ERR", e)  # which drops the code of such an error
try:
    redis.Redis(port=int(os.environ["SASH_PORT"]), password="wrong").ping()
except redis.RedisError as e:
    print("denied", e)
