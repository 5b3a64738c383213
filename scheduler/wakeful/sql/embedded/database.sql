-- Last step of the first start: the database exists exactly when everything before it is done.
CREATE DATABASE wakeful OWNER wakeful TEMPLATE template1
